// Synchronous parameter server: once the gradients of all workers that have not left are in, their
// average is applied, and every one of them gets the parameters (the baseline "Parameter Server" of
// Ripples / Prague, section 2.2).
//
// Pieces are averaged straight from the receive slots as soon as all workers' are there; the step
// is taken when all have ended the iteration. Several servers need not speak to one another: a
// worker says the same to all of them at the same place of its channel, so that they see the same
// workers leave before the same iteration, and the same workers ask to stop in it. A death is an
// error that names who died. All workers have to give the same learning rate.
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

// Of a rank that is a server; workers are in parameter_worker.h.
Result<std::unique_ptr<Method>> prepare_parameter_server(transport::Fabric& fabric,
                                                         const MethodOptions& options);

}  // namespace dunlin::training
