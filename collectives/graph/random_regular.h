// Random regular graphs, made by shuffling the edges of a regular one.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/graph/graph.h"

namespace dunlin::collective {

// Returns the edges, in both directions, of a random connected graph in which every node has
// `degree` neighbors. The result depends only on the arguments. The time grows with nodes *
// degree^2. Returns an error if there is no such graph: the degree must be below the number of
// nodes, degree * nodes must be even, and a connected graph of more than two nodes needs a degree
// of at least 2.
Result<std::vector<Edge>> random_regular_edges(int nodes, int degree, std::uint64_t seed);

}  // namespace dunlin::collective
