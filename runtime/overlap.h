// Whether two ranges of memory have a byte in common. Empty ranges have none.
#pragma once

#include <cstddef>
#include <functional>

namespace dunlin {

inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto* const first = static_cast<const std::byte*>(a);
  const auto* const second = static_cast<const std::byte*>(b);
  const std::less<const std::byte*> is_before;
  return a_bytes > 0 && b_bytes > 0 && is_before(first, second + b_bytes) &&
         is_before(second, first + a_bytes);
}

}  // namespace dunlin
