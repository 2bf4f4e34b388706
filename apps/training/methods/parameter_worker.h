// ParameterWorker: a worker's side of both kinds of parameter servers.
//
// The `servers` last ranks of the job hold a contiguous share of the model each and don't train.
// What a worker says to each of them goes along a NOTIFY-ACK channel, in this order (words of
// parameter_wire.h): before its first iteration the initial parameters of the share; then, for each
// iteration, the share's gradient, piece by piece and as soon as they are ready, so that most of it
// travels during the backward pass, and the end of the iteration, with the learning rate and
// whether this worker wants to stop; at last a farewell. A server answers each end of an iteration
// by putting its share's parameters straight into parameters(), with a notification.
//
// All workers give the initial parameters; those of one count, as a checkpoint's of asynchronous
// training differ from worker to worker: of the lowest rank that neither leaves nor dies before it
// has given them all. What others say is taken once it has, or is gone. Of servers that lose it in
// the midst of that, some may have its parameters and others the next one's.
// Without a server nobody can go on: its death is an error. Whether a worker's is, is the server's
// affair (and of kParameterServer's workers, who name the dead one themselves).
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

// Of a rank that isn't a server.
Result<std::unique_ptr<Method>> prepare_parameter_worker(transport::Fabric& fabric,
                                                         const MethodOptions& options);

}  // namespace dunlin::training
