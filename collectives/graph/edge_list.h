// Edge lists: a node graph as a text file.
//
//     # comment to the end of the line
//     nodes 4        <- optional, before the first edge; otherwise the caller gives the number
//     0 1            <- an edge from node 0 to node 1; for both directions write both
//     1 2
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct EdgeList {
  int nodes = 0;
  std::vector<Edge> edges;  // in the order of the file, including duplicates and self-loops
};

// Reads the text of the file `name`. `nodes` > 0 must equal the number in the file's "nodes" line,
// if it has one. With `nodes` == 0 the file must have that line. Errors name file, line and column:
// "g.txt:3:5: ...".
Result<EdgeList> parse_edge_list(const std::string& name, std::string_view text, int nodes);
// Reads a file instead of text. It must be a regular file.
Result<EdgeList> read_edge_list(const std::string& path, int nodes);

// The text from which parse_edge_list() makes the same edges.
std::string edge_list_text(const Graph& graph);
// Writes it as replace_file() (runtime/files/output_file.h) does.
Status write_edge_list(const Graph& graph, const std::string& path);

}  // namespace dunlin::collective
