// Stochastic reduce: after a step on its own model, each rank averages it with those of its
// in-neighbours in a node graph (ASAP, sections 3 and 4): NOTIFY-ACK, BSP, or ASYNC.
//
// How all stop after the same iteration, without a global operation in each. A rank that wants to
// stop in its iteration t names t + d - 1 the last one, d being the graph's diameter, tells its
// out-neighbours so, and waits for their receipts before it begins to average in t. Who is told
// of an earlier last iteration than it knew does the same in its next iteration. In NOTIFY-ACK an
// out-neighbour can't end iteration t before it has our model of t; in BSP nobody can before all
// have come to the barrier. So out-neighbours know at the end of their iteration t, theirs at the
// end of t + 1, all at the end of t + d - 1. Of several such words the earliest counts. It also
// comes in time: nobody is beyond an iteration that it hasn't ended. Nothing is said where nobody
// wants to stop. In ASYNC, where nobody waits, iterations of ranks have nothing to do with one
// another: each rank stops by itself, and takes no more of others' models then.
//
// leave() is a barrier, as neighbours may write until then. A death is an error that names who
// died: StochasticReduce has to be made anew for the others.
#pragma once

#include <memory>

#include "apps/training/method.h"

namespace dunlin::training {

Result<std::unique_ptr<Method>> prepare_stochastic(transport::Fabric& fabric,
                                                   const MethodOptions& options);

}  // namespace dunlin::training
