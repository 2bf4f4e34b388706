// How many seeds a simulation goes through.
#pragma once

#include <cstdint>

namespace dunlin::testing {

// A tenth of `all` under a sanitizer, which makes each take about ten times as long.
constexpr std::uint64_t seeds(std::uint64_t all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return all / 10;
#else
  return all;
#endif
}

}  // namespace dunlin::testing
