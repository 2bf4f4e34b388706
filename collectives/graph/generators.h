// make_graph: makes a node graph from its name.
//
// A spec is a name; for some graphs a colon and an argument follow: "root-expander", "mesh:4x2",
// "random-regular:3:seed=7", "file:PATH". The same spec and number of nodes give the same graph on
// every host, so each rank can build the graph itself. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

// Returns the graph of `spec` over `nodes` nodes. With nodes == 0 the spec has to name the number:
// "mesh:4x2", "torus:5x5", or a file with a "nodes N" line. The error for an unknown name lists the
// known ones.
Result<Graph> make_graph(std::string_view spec, int nodes);

// A known graph, for lists of them.
struct GraphFamily {
  std::string name;
  std::string usage;  // "mesh[:ROWSxCOLUMNS]"
  std::string help;
};
std::vector<GraphFamily> graph_families();

}  // namespace dunlin::collective
