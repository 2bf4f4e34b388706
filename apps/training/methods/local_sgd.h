// Local SGD: each rank takes steps on a model of its own; after every section_length iterations
// the models are averaged over all ranks, by one all-reduce (Stich 2019; the reduced frequency of
// synchronization of Ripples / Prague, section 7).
//
// The optimizer's velocity stays each rank's own. Whether anybody wants to stop is one element more
// of the average, so that all ranks end with the same one, and with equal models. The flag of an
// iteration without an average counts at the next one. A death is an error that names who died.
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_local_sgd(transport::Fabric& fabric,
                                                  const MethodOptions& options);

}  // namespace dunlin::training
