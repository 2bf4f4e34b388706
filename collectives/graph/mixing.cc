#include "collectives/graph/mixing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/graph/properties.h"

namespace dunlin::collective {
namespace {

// A column sums up to `nodes` terms below 1. This tolerance is far above their rounding error and
// far below the error that a wrong degree causes in a graph of realistic degree.
constexpr double kSumTolerance = 1e-9;

Status check_undirected(const Graph& graph) {
  for (int from = 0; from < graph.nodes(); ++from) {
    for (const int to : graph.out_neighbors(from)) {
      if (graph.has_edge(to, from)) continue;
      return {Code::kInvalidArgument,
              fmt::format(
                  "graph '{}': metropolis weights need both directions of every edge, but {} -> "
                  "{} has no reverse",
                  graph.spec(), from, to)};
    }
  }
  return Status::ok();
}

}  // namespace

const char* to_string(Weighting weighting) {
  return weighting == Weighting::kUniform ? "uniform" : "metropolis";
}

Result<Weighting> parse_weighting(std::string_view name) {
  for (const Weighting weighting : {Weighting::kUniform, Weighting::kMetropolis}) {
    if (name == to_string(weighting)) return weighting;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("weights '{}' are unknown; known are uniform, metropolis", name));
}

Result<MixingMatrix> MixingMatrix::make(const Graph& graph, Weighting weighting) {
  if (weighting == Weighting::kMetropolis) DUNLIN_TRY(check_undirected(graph));
  return MixingMatrix(graph, weighting);
}

MixingMatrix::MixingMatrix(const Graph& graph, Weighting weighting)
    : graph_(&graph), weighting_(weighting), self_(static_cast<std::size_t>(graph.nodes())) {
  for (int i = 0; i < graph.nodes(); ++i) {
    const double share = 1.0 / (graph.in_degree(i) + 1);
    double self = share;
    if (weighting == Weighting::kMetropolis) {
      // Plus what the neighbors leave of their shares. `1 -` their weights would be the same, but
      // miss the share by a rounding where they leave nothing.
      for (const int j : graph.in_neighbors(i)) self += share - weight(i, j);
    }
    self_[static_cast<std::size_t>(i)] = self;
  }
}

double MixingMatrix::weight(int i, int j) const {
  if (weighting_ == Weighting::kUniform) return self_weight(i);
  return 1.0 / (std::max(graph_->in_degree(i), graph_->in_degree(j)) + 1);
}

NodeWeights MixingMatrix::weights_of(int node) const {
  NodeWeights weights{self_weight(node), {}};
  for (const int neighbor : graph_->in_neighbors(node)) {
    weights.in.push_back(weight(node, neighbor));
  }
  return weights;
}

void MixingMatrix::multiply(std::span<const double> x, std::span<double> y) const {
  for (int i = 0; i < graph_->nodes(); ++i) {
    double sum = self_weight(i) * x[static_cast<std::size_t>(i)];
    for (const int j : graph_->in_neighbors(i))
      sum += weight(i, j) * x[static_cast<std::size_t>(j)];
    y[static_cast<std::size_t>(i)] = sum;
  }
}

void MixingMatrix::multiply_transposed(std::span<const double> x, std::span<double> y) const {
  // Metropolis weights are symmetric.
  if (weighting_ == Weighting::kMetropolis) return multiply(x, y);
  for (int j = 0; j < graph_->nodes(); ++j) {
    double sum = self_weight(j) * x[static_cast<std::size_t>(j)];
    for (const int i : graph_->out_neighbors(j))
      sum += self_weight(i) * x[static_cast<std::size_t>(i)];
    y[static_cast<std::size_t>(j)] = sum;
  }
}

bool MixingMatrix::is_doubly_stochastic() const {
  const std::vector<double> ones(self_.size(), 1.0);
  std::vector<double> columns(self_.size());
  multiply_transposed(ones, columns);
  return std::ranges::all_of(columns,
                             [](double sum) { return std::abs(sum - 1) <= kSumTolerance; });
}

}  // namespace dunlin::collective
