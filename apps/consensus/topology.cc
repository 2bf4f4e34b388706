#include "apps/consensus/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "collectives/graph/dynamic.h"
#include "collectives/graph/generators.h"
#include "collectives/graph/mixing.h"
#include "collectives/graph/properties.h"
#include "collectives/graph/spectral.h"

namespace dunlin::consensus {
namespace {

constexpr std::string_view kExponential = "one-peer-exponential";
constexpr std::string_view kOnePeer = "one-peer:";

// The larger root of r^2 - 2 v r + v = 0, v = (1 + w) / 2.
double larger_root(std::complex<double> w) {
  const std::complex<double> v = 0.5 * (1.0 + w);
  const std::complex<double> root = std::sqrt(v * (v - 1.0));
  return std::max(std::abs(v + root), std::abs(v - root));
}

}  // namespace

double share_of(int parts) {
  constexpr int kPlaces = 50;
  return std::ldexp(std::floor(std::ldexp(1.0, kPlaces) / parts), -kPlaces);
}

Topology::Topology(std::string spec, Kind kind, Style style, collective::Graph graph)
    : spec_(std::move(spec)), kind_(kind), style_(style), graph_(std::move(graph)) {}

Result<Topology> Topology::make(const std::string& spec, int ranks, Style style) {
  const bool is_exponential = spec == kExponential;
  const bool is_one_peer = spec.starts_with(kOnePeer);
  const std::string base = is_exponential ? "exponential"
                           : is_one_peer  ? spec.substr(kOnePeer.size())
                                          : spec;
  DUNLIN_ASSIGN(collective::Graph graph, collective::make_graph(base, ranks));
  if (!collective::is_strongly_connected(graph)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("graph '{}' over {} ranks is not strongly connected: some would "
                              "never receive the values of others",
                              spec, ranks));
  }
  const Kind kind = is_exponential ? Kind::kOnePeerExponential
                    : is_one_peer  ? Kind::kOnePeer
                                   : Kind::kStatic;
  Topology topology(spec, kind, style, std::move(graph));
  topology.is_undirected_ = kind == Kind::kStatic && collective::is_undirected(topology.graph_);
  if (style == Style::kPush) return topology;

  if (kind == Kind::kOnePeer) {
    return Status(Code::kInvalidArgument,
                  fmt::format("graph '{}' has no doubly stochastic weights, as several ranks may "
                              "send to the same one; push-diging doesn't need them, and {} has "
                              "them",
                              spec, kExponential));
  }
  if (kind == Kind::kOnePeerExponential) return topology;
  if (!topology.is_undirected_ && !collective::regular_degree(topology.graph_)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("graph '{}' over {} ranks is neither undirected nor regular, and "
                              "has no doubly stochastic weights here; push-diging doesn't need "
                              "them",
                              spec, ranks));
  }
  const auto weighting = topology.is_undirected_ ? collective::Weighting::kMetropolis
                                                 : collective::Weighting::kUniform;
  DUNLIN_ASSIGN(const auto matrix, collective::MixingMatrix::make(topology.graph_, weighting));
  DUNLIN_ASSIGN(const auto spectrum, collective::spectrum(matrix));
  topology.sigma_2_ = spectrum.sigma_2;
  return topology;
}

std::optional<double> Topology::exact_diffusion_rate() const {
  if (!sigma_2_) return std::nullopt;
  if (ranks() == 1) return 0;
  if (is_undirected_) return larger_root(*sigma_2_);
  const auto shifts = collective::circulant_shifts(graph_);
  if (!shifts) return std::nullopt;
  // The eigenvalues of a circulant matrix are the Fourier transform of its first row.
  double largest = 0;
  for (int k = 1; k < ranks(); ++k) {
    std::complex<double> sum = 1;
    for (const int shift : *shifts) sum += std::polar(1.0, 2 * M_PI * k * shift / ranks());
    largest = std::max(largest, larger_root(sum / (1.0 + static_cast<double>(shifts->size()))));
  }
  return largest;
}

StepWeights Topology::weights(int rank, std::uint64_t step) const {
  StepWeights weights;
  if (kind_ != Kind::kStatic) {
    const auto peers = kind_ == Kind::kOnePeer
                           ? collective::one_peer(graph_, rank, step)
                           : collective::one_peer_exponential(ranks(), rank, step);
    // Half goes to the peer and half stays. The weights are column-stochastic, and doubly so if
    // every rank receives from one peer.
    if (!peers.to.empty()) weights.self = 0.5;
    for (const int peer : peers.from) weights.from.push_back({Rank(peer), 1});
    for (const int peer : peers.to) weights.to.push_back({Rank(peer), 0.5});
    return weights;
  }
  if (style_ == Style::kPush) {
    const double share = share_of(1 + graph_.out_degree(rank));
    weights.self = 1 - graph_.out_degree(rank) * share;
    for (const int peer : graph_.in_neighbors(rank)) weights.from.push_back({Rank(peer), 1});
    for (const int peer : graph_.out_neighbors(rank)) weights.to.push_back({Rank(peer), share});
    return weights;
  }
  // If every rank has the same degree, these are the uniform weights, also on directed graphs.
  for (const int peer : graph_.in_neighbors(rank)) {
    const int degree = std::max(graph_.in_degree(rank), graph_.in_degree(peer));
    weights.from.push_back({Rank(peer), share_of(1 + degree)});
    weights.self -= weights.from.back().weight;
  }
  for (const int peer : graph_.out_neighbors(rank)) weights.to.push_back({Rank(peer), 1});
  return weights;
}

}  // namespace dunlin::consensus
