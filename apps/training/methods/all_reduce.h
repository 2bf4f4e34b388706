// All-reduce: synchronous data-parallel SGD. Gradients are averaged over all ranks, then each of
// them takes the same step (the baseline of Ripples / Prague, sections 2 and 7).
//
// The gradient is cut in pieces (pieces.h) whose all-reduces start one by one as they become ready,
// while the backward pass goes on. Whether anybody wants to stop is one element more of the last
// piece: all ranks see the same answer in the same iteration. Nobody can go on without the others:
// a death is an error that names who died.
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_all_reduce(transport::Fabric& fabric,
                                                   const MethodOptions& options);

}  // namespace dunlin::training
