// Small integers as elements of any type, and what collectives make of them: exactly, in whatever
// order they are combined, as long as a job has no more than some tens of ranks.
#pragma once

#include <cstdint>

#include "collectives/kernels/reduce.h"

namespace dunlin::perf {

// Element `index` of rank `rank`'s input; averages come out whole.
std::int64_t pattern_value(collective::ReduceOp op, int rank, int ranks, std::uint64_t index);
// The combination of all ranks' elements at `index`.
std::int64_t pattern_result(collective::Reduction reduction, int ranks, std::uint64_t index);

// As the first size_of(type) bytes of the result. Integers wrap; for float types `value` is one
// that they hold exactly.
std::uint64_t encode(collective::DataType type, std::int64_t value);

}  // namespace dunlin::perf
