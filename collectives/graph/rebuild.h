// rebuild_graph and resize_graph: make the node graph for other nodes than it was made for.
#pragma once

#include <span>
#include <string_view>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

// Returns a graph over the survivors. Node k of the result stands for survivors[k], which are
// ascending node numbers of `graph`. If possible, the result is of the same kind as `graph`; a mesh
// or torus gets a new shape. Otherwise (file, hypercube without a power of two, random-regular with
// an impossible degree) it is the subgraph of the survivors, with a directed ring added if that is
// not strongly connected. The same survivors give the same graph on every rank. Any thread.
Result<Graph> rebuild_graph(const Graph& graph, std::span<const int> survivors);

// Returns a graph of the kind that `spec` describes (generators.h) for this number of nodes, which
// may be more or fewer than `spec` was chosen for. A mesh or torus gets a new shape. What cannot
// have this number of nodes (file, hypercube without a power of two, random-regular with an
// impossible degree) becomes an exponential graph. The same on every rank. Any thread.
Result<Graph> resize_graph(std::string_view spec, int nodes);

}  // namespace dunlin::collective
