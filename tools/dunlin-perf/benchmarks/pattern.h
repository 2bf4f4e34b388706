// Small integers as elements of any type, and the results of collectives on them. The results are
// exact, in whatever order the elements are combined, for jobs of up to some tens of ranks.
#pragma once

#include <cstdint>

#include "collectives/kernels/reduce.h"

namespace dunlin::perf {

// Element `index` of the input of rank `rank`. Averages of such elements are whole numbers.
std::int64_t pattern_value(collective::ReduceOp op, int rank, int ranks, std::uint64_t index);
// The reduction of the elements of all ranks at `index`.
std::int64_t pattern_result(collective::Reduction reduction, int ranks, std::uint64_t index);

// Returns the value in the first size_of(type) bytes of the result. Integers wrap; a floating-point
// type must be able to hold `value` exactly.
std::uint64_t encode(collective::DataType type, std::int64_t value);

}  // namespace dunlin::perf
