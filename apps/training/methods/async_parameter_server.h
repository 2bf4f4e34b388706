// Asynchronous parameter server: each worker's gradient is applied as it comes, with one
// optimizer's state for all, and this worker gets the parameters at once, whatever the others do.
//
// Pieces gather in memory of the worker's own until it has ended its iteration; then the whole
// share's step is taken at once, so that a gradient counts once or, of a worker that dies on the
// way, not at all (each server by itself: of a worker that dies, one may have it and another not).
// The answer is a copy, as others' steps may follow before the lane has read it. Workers end one by
// one: stopped() is what the worker itself asked for. One's death or leaving doesn't stop the
// others; the server ends when none is left.
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

// Of a rank that is a server; workers are in parameter_worker.h.
Result<std::unique_ptr<Method>> prepare_async_parameter_server(transport::Fabric& fabric,
                                                               const MethodOptions& options);

}  // namespace dunlin::training
