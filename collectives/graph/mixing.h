// MixingMatrix: the weights with which a node averages its own model and those of its in-neighbors.
//
// Row i of P holds the weights of node i: P_ii for itself and P_ij for each edge j -> i. Every row
// sums to 1. If every column sums to 1 as well, P is doubly stochastic: repeated reduces bring all
// nodes to the plain average, and every node has the same influence on it (ASAP paper, appendix A).
// Otherwise the nodes still agree, but on an average that favors some of them.
//
// Uniform weights: P = A / d with self-loops, as the paper defines it, which gives each input
// 1 / (in-degree + 1). Doubly stochastic if the graph is regular.
//
// Metropolis weights (Metropolis-Hastings): 1 / (1 + max(deg i, deg j)) for each neighbor, the rest
// for the node itself. For undirected graphs of any degrees. Always doubly stochastic, and equal to
// uniform weights if the graph is regular.
//
// Weights are computed on demand, so a matrix over millions of edges stores one number per node.
// Borrows its graph, which must outlive it. Immutable; any thread.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

enum class Weighting { kUniform, kMetropolis };
const char* to_string(Weighting weighting);
Result<Weighting> parse_weighting(std::string_view name);

// The factors of node i's inputs.
struct NodeWeights {
  double self = 1;
  std::vector<double> in;  // one per graph.in_neighbors(i), in that order
};

class MixingMatrix {
 public:
  // kMetropolis needs the reverse of every edge; the error names an edge that has none.
  static Result<MixingMatrix> make(const Graph& graph, Weighting weighting);
  static Result<MixingMatrix> make(Graph&&, Weighting) = delete;

  const Graph& graph() const { return *graph_; }
  Weighting weighting() const { return weighting_; }
  NodeWeights weights_of(int node) const;

  // P_ij for an edge j -> i of the graph.
  double weight(int i, int j) const;
  double self_weight(int i) const { return self_[static_cast<std::size_t>(i)]; }

  // Compute y = P x and y = P^T x. Both hold nodes() values and do not overlap.
  void multiply(std::span<const double> x, std::span<double> y) const;
  void multiply_transposed(std::span<const double> x, std::span<double> y) const;

  // True if every column sums to 1, up to rounding.
  bool is_doubly_stochastic() const;

 private:
  MixingMatrix(const Graph& graph, Weighting weighting);

  const Graph* graph_;
  Weighting weighting_;
  std::vector<double> self_;
};

}  // namespace dunlin::collective
