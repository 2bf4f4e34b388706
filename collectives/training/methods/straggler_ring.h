// Straggler ring: synchronous data-parallel SGD, whose gradients are averaged around a ring that
// does not wait for a rank which is late (collectives/straggler/straggler_ring.h; Zhang et al.,
// 2024).
//
// The average begins when the whole gradient is there, as the ring needs all of it. The vector has
// one additional element, which tells whether any rank wants to stop, so all ranks learn that in
// the same iteration. All ranks have the same bits; another run may round differently if a rank was
// late. No rank can continue without the others: a death is an error that names the dead rank.
#pragma once

#include <memory>

#include "collectives/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_straggler_ring(transport::Fabric& fabric,
                                                       const MethodOptions& options);

}  // namespace dunlin::training
