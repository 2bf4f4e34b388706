// Neighborhood: one rank's view of a node graph over the members of a job: whom it sends to, whom
// it hears from, and with which weights it averages.
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
  std::vector<double> in_weights;  // one per `in`
};

// Node i of the graph is members[i]; `self` is one of the members. kInvalidArgument when it isn't,
// or when graph and members differ in number.
Result<Neighborhood> neighborhood_of(const Graph& graph, Weighting weighting,
                                     const std::vector<Rank>& members, Rank self);

}  // namespace dunlin::collective
