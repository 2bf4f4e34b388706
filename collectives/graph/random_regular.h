// Random regular graphs, made by shuffling the edges of a regular one.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/graph/graph.h"

namespace dunlin::collective {

// The edges, both ways, of a random connected graph in which every node has `degree` neighbours.
// The result depends on nothing but the arguments; the time grows with nodes * degree^2. Fails when
// there is no such graph: the degree must be below the number of nodes, degree * nodes even, and a
// connected graph of more than two nodes needs a degree of 2.
Result<std::vector<Edge>> random_regular_edges(int nodes, int degree, std::uint64_t seed);

}  // namespace dunlin::collective
