// Properties of a node graph that need no linear algebra: degrees, symmetry, connectivity,
// distance. Pure functions; any thread. Nothing is recursive, so long chains are safe.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "collectives/graph/graph.h"

namespace dunlin::collective {

struct DegreeRange {
  int min_in = 0;
  int max_in = 0;
  int min_out = 0;
  int max_out = 0;
};
DegreeRange degree_range(const Graph& graph);

// The common degree d if every node has in-degree = out-degree = d.
std::optional<int> regular_degree(const Graph& graph);

// True if every edge has its reverse.
bool is_undirected(const Graph& graph);

// True if the model of every node reaches every other node.
bool is_strongly_connected(const Graph& graph);

// Returns the shifts S if the out-neighbors of every node i are exactly i + s modulo N, s in S. The
// graph then looks the same from each node, and its mixing matrix is circulant. Does not depend on
// how the graph was made.
std::optional<std::vector<int>> circulant_shifts(const Graph& graph);

// The largest distance between two nodes, or bounds on it.
struct Diameter {
  int lower = 0;
  int upper = 0;
  bool is_exact() const { return lower == upper; }
};

// The default limit of diameter(): about a second of searching.
inline constexpr std::size_t kDiameterWork = 200'000'000;

// Absent if the graph is not strongly connected. Exact for circulant graphs, and if a search from
// every node visits at most `work` edges in total; otherwise bounds from a few searches.
std::optional<Diameter> diameter(const Graph& graph, std::size_t work = kDiameterWork);

}  // namespace dunlin::collective
