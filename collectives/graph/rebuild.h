// rebuild_graph: the node graph after some nodes are gone.
#pragma once

#include <span>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

// The graph for a job that goes on with some of its nodes; node k of the result stands for
// survivors[k] (ascending node numbers of `graph`). The same kind of graph is made for the smaller
// number where there is one (a mesh or torus gets a new shape); otherwise (file, hypercube without
// a power of two, random-regular with an impossible degree) it is the subgraph of the survivors,
// and a directed ring over them on top if that is not strongly connected. Every rank that calls it
// with the same survivors gets the same graph. Any thread.
Result<Graph> rebuild_graph(const Graph& graph, std::span<const int> survivors);

}  // namespace dunlin::collective
