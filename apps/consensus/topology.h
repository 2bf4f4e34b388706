// Topology: the neighbors with which every rank averages in every step, and the weights.
//
// In step k, the result of rank i is w_ii x_i + the sum over j of w_ij x_j. There are two styles of
// weights (BlueFog, section II-A). With doubly stochastic weights every rank has the same
// influence; they need a graph that is undirected or regular. Column-stochastic ("push") weights, 1
// / (out-degree + 1), exist on any directed graph, and need push-sum's correction.
//
// A spec is a graph of make_graph(), or one of these, which change from step to step
// (collectives/graph/dynamic.h):
//  one-peer-exponential   to the rank 1, 2, 4, ... places on
//  one-peer:GRAPH         to one out-neighbor in GRAPH after the other
//
// A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/graph/graph.h"
#include "collectives/neighbor/call.h"

namespace dunlin::consensus {

enum class Style { kDoublyStochastic, kPush };

// The weights of one rank in one step. w_ij = the weight of j in i's `from` times that of i in j's
// `to`.
struct StepWeights {
  double self = 1;
  std::vector<collective::WeightedRank> from;
  std::vector<collective::WeightedRank> to;
};

// Returns 1 / parts, rounded to 50 binary places. Sums of such shares up to 1 are exact, so that
// the parts that a rank gives away and the part that it keeps add up to what it had. With weights
// that are rounded separately, ranks would create or destroy about 1e-16 of it in every step, which
// push-sum and exact diffusion accumulate.
double share_of(int parts);

class Topology {
 public:
  // kInvalidArgument for graphs that are not strongly connected or do not have such weights. The
  // message names graphs that do.
  static Result<Topology> make(const std::string& spec, int ranks, Style style);

  StepWeights weights(int rank, std::uint64_t step) const;

  const std::string& spec() const { return spec_; }
  int ranks() const { return graph_.nodes(); }
  bool is_static() const { return kind_ == Kind::kStatic; }
  // Whether every edge has its reverse, in every step.
  bool is_undirected() const { return is_undirected_; }
  // All edges of all steps.
  const collective::Graph& graph() const { return graph_; }
  // The factor by which one averaging shrinks the distance from the average at least. Known for
  // static doubly stochastic weights only.
  std::optional<double> sigma_2() const { return sigma_2_; }
  // The factor by which exact diffusion's averaging (algorithm.h) shrinks the disagreement of the
  // ranks. It is the largest root of r^2 - 2 v r + v = 0, v = (1 + w) / 2, over all eigenvalues w
  // of W except 1. For undirected graphs it is below 1, and a bound; for directed ones it may be
  // above. Nothing where the eigenvalues of W are not known: they are known for static doubly
  // stochastic weights if the graph is undirected or looks the same from each rank.
  std::optional<double> exact_diffusion_rate() const;

 private:
  enum class Kind { kStatic, kOnePeer, kOnePeerExponential };
  Topology(std::string spec, Kind kind, Style style, collective::Graph graph);

  std::string spec_;
  Kind kind_;
  Style style_;
  collective::Graph graph_;
  bool is_undirected_ = false;
  std::optional<double> sigma_2_;
};

}  // namespace dunlin::consensus
