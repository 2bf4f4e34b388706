// Whether two ranges of memory have a byte in common. Empty ranges have none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dunlin {

inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  if (a_bytes == 0 || b_bytes == 0) return false;
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second ? second - first < a_bytes : first - second < b_bytes;
}

}  // namespace dunlin
