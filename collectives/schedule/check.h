// The symbolic checker. It proves that a schedule does what its collective promises, at any timing.
//
// The checker walks through the programs once. The result holds for all orders of steps (walk.h).
// It tracks sets of contributions instead of numbers, and a vector clock per step. It proves that
//   - every rank comes to an end, and every message is received by the wait that expects it;
//   - every element of every result holds every contribution exactly once, and was finished exactly
//     once (an average is divided once);
//   - no step reads memory that was never written;
//   - no two accesses to the same memory can overlap in time if one of them is a write. A put reads
//     its input until the receiver is known to have the bytes, or until a drain. It writes its
//     target until the receiver has waited for it;
//   - peers access a rank's input and output only after that rank has entered the collective;
//   - the algorithm has the properties that it claims: is_synchronizing and is_polite.
#pragma once

#include <span>

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

inline constexpr int kMostCheckedRanks = 64;

struct CheckedProperties {
  bool is_synchronizing = false;
  bool is_polite = false;
};

// programs[r] is the program of rank r; there are at most kMostCheckedRanks. `in_place`: input and
// output share memory. kCorrupted names the step and what is wrong with it.
Result<CheckedProperties> check(const Problem& problem, std::span<const Program> programs,
                                bool in_place);

}  // namespace dunlin::collective
