// What can be read off a node graph without linear algebra: degrees, symmetry, connectivity,
// distance. Pure functions; any thread. Nothing recurses, so that long chains are safe.
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

// The common degree d when every node has in-degree = out-degree = d.
std::optional<int> regular_degree(const Graph& graph);

// Every edge has its reverse.
bool is_undirected(const Graph& graph);

// Every node's model reaches every other node.
bool is_strongly_connected(const Graph& graph);

// The shifts S when every node i has exactly the out-neighbours i + s modulo N, s in S: the graph
// looks the same from each node, and its mixing matrix is circulant. Independent of how it was
// made.
std::optional<std::vector<int>> circulant_shifts(const Graph& graph);

// The largest distance between two nodes, or bounds on it.
struct Diameter {
  int lower = 0;
  int upper = 0;
  bool is_exact() const { return lower == upper; }
};

// The default of diameter(): about a second of searching.
inline constexpr std::size_t kDiameterWork = 200'000'000;

// Absent when the graph isn't strongly connected. Exact for circulant graphs and whenever a search
// from every node visits no more than `work` edges in all; else bounds from a few searches.
std::optional<Diameter> diameter(const Graph& graph, std::size_t work = kDiameterWork);

}  // namespace dunlin::collective
