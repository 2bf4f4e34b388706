#include "collectives/stochastic/neighborhood.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {

Result<Neighborhood> neighborhood_of(const Graph& graph, Weighting weighting,
                                     const std::vector<Rank>& members, Rank self) {
  if (graph.nodes() != static_cast<int>(members.size())) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a graph of {} nodes over {} ranks", graph.nodes(), members.size()));
  }
  const auto place = std::find(members.begin(), members.end(), self);
  if (place == members.end()) {
    return Status(Code::kInvalidArgument, fmt::format("rank {} is no member", self.value()));
  }
  const int node = static_cast<int>(place - members.begin());
  DUNLIN_ASSIGN(const MixingMatrix mixing, MixingMatrix::make(graph, weighting));
  NodeWeights weights = mixing.weights_of(node);
  Neighborhood result;
  for (const int neighbor : graph.in_neighbors(node))
    result.in.push_back(members[static_cast<std::size_t>(neighbor)]);
  for (const int neighbor : graph.out_neighbors(node))
    result.out.push_back(members[static_cast<std::size_t>(neighbor)]);
  result.self_weight = weights.self;
  result.in_weights = std::move(weights.in);
  return result;
}

}  // namespace dunlin::collective
