// make_graph: every node graph that Dunlin knows, by its name.
//
// A spec is a name, and for some graphs an argument behind a colon: "root-expander", "mesh:4x2",
// "random-regular:3:seed=7", "file:PATH". The same spec and node count give the same graph on every
// machine, so that each rank builds it for itself. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

// The graph of `spec` over `nodes` nodes. With nodes == 0 the spec must say how many: "mesh:4x2",
// "torus:5x5", or a file with a "nodes N" line. Errors say what is wrong and, for an unknown name,
// which ones there are.
Result<Graph> make_graph(std::string_view spec, int nodes);

// A line of the list of known graphs.
struct GraphFamily {
  std::string name;
  std::string usage;  // "mesh[:ROWSxCOLUMNS]"
  std::string help;
};
std::vector<GraphFamily> graph_families();

}  // namespace dunlin::collective
