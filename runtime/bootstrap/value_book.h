// ValueBook: what ranks have published, and how much each of them has given the coordinator to keep
// until the job ends. It belongs to a JobLedger.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class ValueBook {
 public:
  explicit ValueBook(int size) : kept_(static_cast<std::size_t>(size)) {}

  // Keeps a value: text: key; value. kAlreadyExists if a rank has published the key before.
  Status keep(Rank from, const Message& message);
  // The value of a key; null if it has not been published.
  const Bytes* find(const std::string& key) const;

  // Counts a message as kept. kResourceExhausted if that is too much for one rank.
  Status charge(Rank from, const Message& message);
  // Takes back what charge() has counted for a message that is not kept.
  void refund(Rank from, const Message& message);

 private:
  struct Kept {
    std::size_t keys = 0;
    std::size_t bytes = 0;
  };

  std::map<std::string, Bytes, std::less<>> values_;
  std::vector<Kept> kept_;  // by rank
};

}  // namespace dunlin::bootstrap
