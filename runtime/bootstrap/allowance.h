// Allowance: how much the coordinator keeps for each rank of a job, and whether there is room for
// more.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class Allowance {
 public:
  explicit Allowance(int size) : kept_(static_cast<std::size_t>(size)) {}

  // How many bytes count for a message that is kept.
  static std::size_t bytes_of(const Message& message);
  // Counts one more entry of so many bytes for a rank. kResourceExhausted if that is too much for
  // one rank.
  Status charge(Rank rank, std::size_t bytes);
  // Undoes a charge(): the entry is not kept, or not any more.
  void refund(Rank rank, std::size_t bytes);

 private:
  struct Kept {
    std::size_t entries = 0;
    std::size_t bytes = 0;
  };

  std::vector<Kept> kept_;  // by rank
};

}  // namespace dunlin::bootstrap
