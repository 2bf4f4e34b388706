// All-reduce: synchronous data-parallel SGD. Gradients are averaged over all ranks, then each rank
// takes the same step (the baseline of Ripples / Prague, sections 2 and 7).
//
// The gradient is cut into pieces (pieces.h). Their all-reduces start one by one as pieces become
// ready, while the backward pass continues. The last piece has one additional element, which tells
// whether any rank wants to stop, so all ranks learn that in the same iteration. No rank can
// continue without the others: a death is an error that names the dead rank.
#pragma once

#include <memory>

#include "collectives/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_all_reduce(transport::Fabric& fabric,
                                                   const MethodOptions& options);

}  // namespace dunlin::training
