// Synchronous parameter server: when the gradients of all workers that have not left have arrived,
// the server applies their average and sends the parameters to each of these workers (the baseline
// "Parameter Server" of Ripples / Prague, section 2.2).
//
// A piece is averaged straight from the receive slots as soon as every worker's piece has arrived.
// The step is taken when all workers have ended the iteration. Servers need not communicate with
// one another: a worker sends the same messages to all of them, in the same order, so all servers
// see the same workers leave before an iteration and ask to stop in it. A death is an error that
// names the dead rank. All workers must pass the same learning rate.
#pragma once

#include <memory>

#include "collectives/training/method.h"

namespace dunlin::training {

// For ranks that are servers. parameter_worker.h is for workers.
Result<std::unique_ptr<Method>> prepare_parameter_server(transport::Fabric& fabric,
                                                         const MethodOptions& options);

}  // namespace dunlin::training
