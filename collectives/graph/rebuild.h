// rebuild_graph: makes the node graph for the survivors of failed nodes.
#pragma once

#include <span>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

// Returns a graph over the survivors. Node k of the result stands for survivors[k], which are
// ascending node numbers of `graph`. If possible, the result is of the same kind as `graph`; a mesh
// or torus gets a new shape. Otherwise (file, hypercube without a power of two, random-regular with
// an impossible degree) it is the subgraph of the survivors, with a directed ring added if that is
// not strongly connected. The same survivors give the same graph on every rank. Any thread.
Result<Graph> rebuild_graph(const Graph& graph, std::span<const int> survivors);

}  // namespace dunlin::collective
