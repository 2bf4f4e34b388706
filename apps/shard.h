// Shard: the part of a training set that falls to one rank: the elements rank, rank + ranks, rank +
// 2 * ranks, ... A value.
#pragma once

#include <cstdint>

namespace dunlin {

struct Shard {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;

  constexpr bool owns(std::uint64_t element) const { return element % ranks == rank; }
  bool operator==(const Shard&) const = default;
};

}  // namespace dunlin
