// Local SGD: each rank takes steps on its own model. After every section_length iterations one
// all-reduce averages the models over all ranks (Stich 2019; Ripples / Prague, section 7, which
// synchronizes less often in this way).
//
// Each rank keeps its own optimizer velocity. The average has one additional element, which tells
// whether any rank wants to stop, so all ranks end after the same average, with equal models. A
// request to stop in an iteration without an average counts at the next average. A death is an
// error that names the dead rank.
#pragma once

#include <memory>

#include "collectives/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_local_sgd(transport::Fabric& fabric,
                                                  const MethodOptions& options);

}  // namespace dunlin::training
