// Stochastic reduce: each rank takes a step on its own model and averages it with the models of its
// in-neighbors in a node graph (ASAP, sections 3 and 4), with NOTIFY-ACK, BSP or ASYNC.
//
// All ranks stop after the same iteration, without a global operation in each iteration. Let d be
// the diameter of the graph. A rank that wants to stop in its iteration t declares t + d - 1 the
// last one. It tells its out-neighbors, and waits for their ACKs before it averages in iteration t.
// A rank that learns of an earlier last iteration does the same in its next iteration.
//
// This reaches all ranks in time. In NOTIFY-ACK an out-neighbor cannot end iteration t without this
// rank's model of t; in BSP no rank can before all have reached the barrier. So the out-neighbors
// know at the end of their iteration t, their out-neighbors at the end of t + 1, and all ranks at
// the end of t + d - 1. The earliest of several declared iterations counts. No messages are sent
// while no rank wants to stop. In ASYNC no rank waits, and the iterations of the ranks are
// unrelated: each rank stops by itself and then takes no more models of others.
//
// leave() is a barrier, because neighbors may write until then. A death is an error that names the
// dead rank; the other ranks have to create a new StochasticReduce.
#pragma once

#include <memory>

#include "collectives/graph/graph.h"
#include "collectives/training/method.h"

namespace dunlin::training {

// The graph of options.graph for so many ranks. With options.members, which may have any number, a
// graph that the spec cannot make is resized (collectives/graph/rebuild.h).
Result<collective::Graph> graph_of(const MethodOptions& options, int ranks);

Result<std::unique_ptr<Method>> prepare_stochastic(transport::Fabric& fabric,
                                                   const MethodOptions& options);

}  // namespace dunlin::training
