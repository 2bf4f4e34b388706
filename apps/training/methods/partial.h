// Partial all-reduce: the models of groups of workers that change are averaged (Ripples / Prague).
// Its options are in MethodOptions (section_length, groups, generator).
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

// kUnavailable: not in this build yet; see partial.cc.
Result<std::unique_ptr<Method>> prepare_partial(transport::Fabric& fabric,
                                                const MethodOptions& options);

}  // namespace dunlin::training
