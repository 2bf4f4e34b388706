// Edge lists: a node graph as a text file.
//
//     # comment to the end of the line
//     nodes 4        <- optional, before the first edge; without it the caller says how many
//     0 1            <- an edge from node 0 to node 1; for both directions write both
//     1 2
#pragma once

#include <string>
#include <vector>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct EdgeList {
  int nodes = 0;
  std::vector<Edge> edges;  // in the order of the file, duplicates and self-loops included
};

// Reads `path`. `nodes` > 0 must agree with the file's "nodes" line where there is one; with 0 that
// line must be there. Errors name file, line and column: "g.txt:3:5: ...".
Result<EdgeList> read_edge_list(const std::string& path, int nodes);

// Writes `graph` so that read_edge_list() gives it back. An existing file is replaced.
Status write_edge_list(const Graph& graph, const std::string& path);

}  // namespace dunlin::collective
