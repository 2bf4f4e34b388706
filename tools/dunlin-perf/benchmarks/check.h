// Checks transferred data by patterns, whose bytes depend on a seed and on their position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/status.h"

namespace dunlin::perf {

class Job;
class Pair;

void fill(std::span<std::byte> bytes, std::uint64_t seed);
// Returns kCorrupted with `what` and the first wrong byte.
Status verify(std::span<const std::byte> bytes, std::uint64_t seed, const char* what);

// The same for memory of the kind that the job measures, of which the CPU may not reach a byte.
Status fill(Job& job, std::span<std::byte> bytes, std::uint64_t seed);
Status verify(Job& job, std::span<const std::byte> bytes, std::uint64_t seed, const char* what);

// The number of bytes behind a message that must not change.
inline constexpr std::size_t kGuard = 64;
// Checks that a put of `size` bytes from the leader to its peer, or puts in both directions at
// once, arrive and change nothing behind them. Collective over both ranks, whose regions must have
// room for kGuard bytes more.
Status check_puts(Pair& pair, std::size_t size, bool both_ways);

}  // namespace dunlin::perf
