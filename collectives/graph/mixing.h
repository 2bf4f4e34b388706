// MixingMatrix: with which weights a node averages its own model and those of its in-neighbours.
//
// Row i of P holds the weights of node i: P_ii for itself and P_ij for each edge j -> i; every row
// sums to 1. If every column does so too, P is doubly stochastic, repeated reduces drive all nodes
// to the plain average, and every node has the same influence on it (paper, appendix A). Otherwise
// they still agree, but on an average that favours some nodes.
//
//   uniform      P = A / d with self-loops, as the paper defines it: 1 / (in-degree + 1) for each
//   input.
//                Doubly stochastic when the graph is regular.
//   metropolis   1 / (1 + max(deg i, deg j)) for each neighbour, the rest for itself. For
//   undirected
//                graphs of any degrees; always doubly stochastic (Metropolis-Hastings). The same as
//                uniform when the graph is regular.
//
// Weights are computed when asked for, so that a matrix over millions of edges costs one number per
// node. Borrows its graph, which must outlive it. Immutable; any thread.
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

// What node i multiplies its inputs by.
struct NodeWeights {
  double self = 1;
  std::vector<double> in;  // one per graph.in_neighbors(i), in that order
};

class MixingMatrix {
 public:
  // kMetropolis on a graph with an edge that has no reverse is an error that names the edge.
  static Result<MixingMatrix> make(const Graph& graph, Weighting weighting);
  static Result<MixingMatrix> make(Graph&&, Weighting) = delete;

  const Graph& graph() const { return *graph_; }
  Weighting weighting() const { return weighting_; }
  NodeWeights weights_of(int node) const;

  // P_ij for an edge j -> i of the graph.
  double weight(int i, int j) const;
  double self_weight(int i) const { return self_[static_cast<std::size_t>(i)]; }

  // y = P x and y = P^T x; both hold nodes() values and don't overlap.
  void multiply(std::span<const double> x, std::span<double> y) const;
  void multiply_transposed(std::span<const double> x, std::span<double> y) const;

  // Every column sums to 1, up to rounding.
  bool is_doubly_stochastic() const;

 private:
  MixingMatrix(const Graph& graph, Weighting weighting);

  const Graph* graph_;
  Weighting weighting_;
  std::vector<double> self_;
};

}  // namespace dunlin::collective
