// Topology: whom every rank averages with in every step, and with which weights.
//
// In step k, rank i's result is w_ii x_i + the sum over j of w_ij x_j. Two styles (BlueFog, section
// II-A): with doubly stochastic weights every rank has the same influence; they need a graph that
// is undirected or regular. Column-stochastic ("push") weights, 1 / (out-degree + 1), can be had on
// any directed graph, and need push-sum's correction.
//
// A spec is a graph of make_graph(), or one of these, which change from step to step
// (collectives/graph/dynamic.h):
//   one-peer-exponential   to the rank 1, 2, 4, ... places on
//   one-peer:GRAPH         to one out-neighbour in GRAPH after the other
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

// Of one rank in one step. w_ij = the weight of j in i's `from` times that of i in j's `to`.
struct StepWeights {
  double self = 1;
  std::vector<collective::WeightedRank> from;
  std::vector<collective::WeightedRank> to;
};

// 1 / parts, to 50 binary places: sums of shares up to 1 are exact, so that what a rank hands out
// and what it keeps is exactly what it had. With weights that are rounded on their own, ranks would
// create or destroy some 1e-16 of it in every step, which push-sum and exact diffusion add up.
double share_of(int parts);

class Topology {
 public:
  // kInvalidArgument, with what would do, for graphs that are not strongly connected or do not have
  // such weights.
  static Result<Topology> make(const std::string& spec, int ranks, Style style);

  StepWeights weights(int rank, std::uint64_t step) const;

  const std::string& spec() const { return spec_; }
  int ranks() const { return graph_.nodes(); }
  bool is_static() const { return kind_ == Kind::kStatic; }
  // Every edge has its reverse, in every step.
  bool is_undirected() const { return is_undirected_; }
  // All edges of all steps.
  const collective::Graph& graph() const { return graph_; }
  // By which factor one averaging shrinks the distance from the average at least; of static doubly
  // stochastic weights only.
  std::optional<double> sigma_2() const { return sigma_2_; }
  // By which factor exact diffusion's averaging (algorithm.h) shrinks the ranks' disagreement: the
  // largest root of r^2 - 2 v r + v = 0, v = (1 + w) / 2, over all eigenvalues w of W but the 1. It
  // is below 1 for undirected graphs, of which this is a bound, and may be above for directed ones.
  // Absent where W's eigenvalues aren't known: static doubly stochastic weights have it if the
  // graph is undirected or looks the same from each rank.
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
