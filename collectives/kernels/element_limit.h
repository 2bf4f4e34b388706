// The longest vector of a call.
#pragma once

#include <cstddef>

namespace dunlin::collective {

// With this limit, no size in bytes overflows.
inline constexpr std::size_t kMostElements = std::size_t{1} << 40;

}  // namespace dunlin::collective
