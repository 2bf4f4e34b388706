// ReleaseBook: which topics ranks have released (Bootstrap::release) that not all of their users
// have. It belongs to a JobLedger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/rank.h"

namespace dunlin::bootstrap {

class ReleaseBook {
 public:
  // Notes that a rank has released a topic. `users`: how many ranks use it; 0 if this rank does not
  // know. Returns those that have released it, once these are all users, and forgets them;
  // otherwise an empty vector.
  std::vector<Rank> note(Rank from, const std::string& topic, std::uint64_t users);

 private:
  struct Release {
    std::vector<Rank> ranks;
    std::uint64_t users = 0;  // 0: not known yet
  };

  std::map<std::string, Release, std::less<>> releases_;
};

}  // namespace dunlin::bootstrap
