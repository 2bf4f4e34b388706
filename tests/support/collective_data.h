// The inputs and the expected outputs of collectives in tests.
#pragma once

#include <cstddef>

#include "collectives/kernels/data_type.h"
#include "collectives/schedule/problem.h"

namespace dunlin::testing {

// Element e of a rank's input to call number `call`: a small integer, so that sums are exact in
// float32.
inline float input_element(std::size_t call, int rank, std::size_t e) {
  return static_cast<float>((e * 7 + static_cast<std::size_t>(rank) * 13 + call * 29) % 101) - 50;
}

// Element e of the output of the same call; for kReduce, on the root. `op`: kSum or kAverage.
inline float output_element(std::size_t call, const collective::Problem& problem,
                            collective::ReduceOp op, int rank, std::size_t e) {
  using collective::Collective;
  const std::size_t n = problem.count;
  const std::size_t mine = static_cast<std::size_t>(rank) * n;
  const auto reduced = [&](std::size_t element) {
    float sum = 0;
    for (int from = 0; from < problem.size; ++from) sum += input_element(call, from, element);
    const auto size = static_cast<float>(problem.size);
    return op == collective::ReduceOp::kAverage ? sum / size : sum;
  };
  switch (problem.collective) {
    case Collective::kBroadcast:
      return input_element(call, problem.root, e);
    case Collective::kReduceScatter:
      return reduced(mine + e);
    case Collective::kAllGather:
      return input_element(call, static_cast<int>(e / n), e % n);
    case Collective::kAllToAll:
      return input_element(call, static_cast<int>(e / n), mine + e % n);
    default:
      return reduced(e);
  }
}

}  // namespace dunlin::testing
