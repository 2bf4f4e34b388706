// Neighborhood: one rank's part of a node graph over the members of a job: the ranks that it sends
// to, the ranks that it receives from, and the weights with which it averages.
#pragma once

#include <vector>

#include "collectives/graph/graph.h"
#include "collectives/graph/mixing.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct Neighborhood {
  std::vector<Rank> in;  // ascending by node
  std::vector<Rank> out;
  double self_weight = 1;
  std::vector<double> in_weights;  // one per rank of `in`
};

// Node i of the graph is members[i]. kInvalidArgument if `self` is no member, or if the graph
// doesn't have as many nodes as there are members.
Result<Neighborhood> neighborhood_of(const Graph& graph, Weighting weighting,
                                     const std::vector<Rank>& members, Rank self);

}  // namespace dunlin::collective
