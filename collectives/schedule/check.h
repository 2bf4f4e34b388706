// The symbolic checker: whether a schedule does what its collective promises, for every timing.
//
// It walks through the programs once, which decides for all orders of steps (program.h), with sets
// of contributions in the place of numbers and a vector clock per step. It proves
//   - that every rank ends, and that no message is left over or taken for another one;
//   - that every element of every result holds every contribution exactly once, and was finished
//     exactly once (an average is divided once);
//   - that nothing is read before it was written, and that no two accesses to the same memory, one
//     of them a write, can overlap in time: a put reads its input until the receiver is known to
//     have the bytes, or until a drain, and writes its target until the receiver has waited for it;
//   - that user buffers are touched by peers only once their owner has entered the collective;
//   - what the algorithm says of itself: is_synchronizing, is_polite.
#pragma once

#include <span>

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

inline constexpr int kMostCheckedRanks = 64;

struct CheckedProperties {
  bool is_synchronizing = false;
  bool is_polite = false;
};

// programs[r] is rank r's; at most kMostCheckedRanks. `in_place`: input and output share memory.
// kCorrupted says what is wrong, in which step.
Result<CheckedProperties> check(const Problem& problem, std::span<const Program> programs,
                                bool in_place);

}  // namespace dunlin::collective
