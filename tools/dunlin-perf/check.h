// Test patterns: bytes that depend on a seed and on their position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/status.h"

namespace dunlin::perf {

void fill(std::span<std::byte> bytes, std::uint64_t seed);
// kCorrupted names `what` and the first wrong byte.
Status verify(std::span<const std::byte> bytes, std::uint64_t seed, const char* what);

}  // namespace dunlin::perf
