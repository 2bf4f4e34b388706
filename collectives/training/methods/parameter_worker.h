// ParameterWorker: a worker's side of both kinds of parameter servers.
//
// The last `servers` ranks of the job hold a contiguous share of the model each and do not train. A
// worker sends to each of them along a NOTIFY-ACK channel, in this order (parameter_wire.h defines
// the messages):
//   - before its first iteration, the initial parameters of the share;
//   - in each iteration, the share's gradient. Each piece is sent as soon as it is ready, so most
//     of the gradient travels during the backward pass;
//   - at the end of each iteration, the learning rate and whether this worker wants to stop;
//   - at last, that it leaves.
// A server answers each end of an iteration: it puts its share of the parameters straight into
// parameters(), with a notification.
//
// All workers send initial parameters, but those of one worker count. This matters for checkpoints
// of asynchronous training, which differ from worker to worker. The worker that counts is the
// lowest rank that neither leaves nor dies before it has sent all of them. Messages of the other
// workers are taken after that, or when that worker is gone. If it dies while it is sending, some
// servers may have its parameters and others those of the next worker.
//
// No worker can continue without a server, so a server's death is an error. The server decides
// whether a worker's death is one. With kParameterServer the workers name the dead worker
// themselves.
#pragma once

#include <memory>

#include "collectives/training/method.h"

namespace dunlin::training {

// For ranks that are not servers.
Result<std::unique_ptr<Method>> prepare_parameter_worker(transport::Fabric& fabric,
                                                         const MethodOptions& options);

}  // namespace dunlin::training
