// ReleaseBook: the topics that some of their users have released (Bootstrap::release), but not all.
// It belongs to a JobLedger.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "runtime/bootstrap/allowance.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class ReleaseBook {
 public:
  explicit ReleaseBook(int size) : allowance_(size) {}

  // Notes that a rank has released a topic; a second time has no effect. `users`: how many ranks
  // use it; 0 if this rank does not know. kBusy while other users have not released it; ok once all
  // have, and this book has dropped it. kResourceExhausted if too many releases of this rank wait
  // for other ranks: this one is not noted, and may be repeated.
  Status note(Rank from, const std::string& topic, std::uint64_t users);

 private:
  struct Release {
    std::set<Rank> ranks;
    std::uint64_t users = 0;  // 0: not known yet
  };

  // Apart from that for values: a rank that has no room left for them can make some.
  Allowance allowance_;
  std::map<std::string, Release> releases_;
};

}  // namespace dunlin::bootstrap
