// Test patterns: bytes that depend on a seed and on their position; and what they find out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/status.h"

namespace dunlin::perf {

class Pair;

void fill(std::span<std::byte> bytes, std::uint64_t seed);
// kCorrupted names `what` and the first wrong byte.
Status verify(std::span<const std::byte> bytes, std::uint64_t seed, const char* what);

// Bytes behind a message that must stay as they are.
inline constexpr std::size_t kGuard = 64;
// A put of `size` bytes from the leader to the partner, or both ways at once, arrives, and nothing
// behind it is touched. Collective over both, whose regions have room for kGuard bytes more.
Status check_puts(Pair& pair, std::size_t size, bool both_ways);

}  // namespace dunlin::perf
