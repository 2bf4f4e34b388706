// Asynchronous parameter server: it applies the gradient of each worker when it arrives, with one
// optimizer state for all workers, and answers that worker at once, whatever the others do.
//
// The pieces of a gradient are collected in memory of that worker until it has ended its iteration.
// Then one step is taken for the whole share. So a gradient counts exactly once, or not at all if
// its worker dies before. This holds for each server separately: one server may have the gradient
// of a dead worker and another one may not. The answer is a copy of the parameters, because other
// steps may follow before the lane has read it. Workers end one by one: stopped() returns what the
// worker itself has asked for. The death or end of a worker does not stop the others. The server
// ends when no worker is left.
#pragma once

#include <memory>

#include "collectives/training/method.h"

namespace dunlin::training {

// For ranks that are servers. parameter_worker.h is for workers.
Result<std::unique_ptr<Method>> prepare_async_parameter_server(transport::Fabric& fabric,
                                                               const MethodOptions& options);

}  // namespace dunlin::training
