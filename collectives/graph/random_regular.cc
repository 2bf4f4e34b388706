#include "collectives/graph/random_regular.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>

namespace dunlin::collective {
namespace {

// Nearly always the first attempt gives a connected graph: for degree 3 and more, the probability
// that a random regular graph is connected tends to 1.
constexpr int kAttempts = 100;
// Attempted switches per edge. About ln(edges) / 2 per edge touch every edge; ten is ample for any
// size.
constexpr std::size_t kSwitchesPerEdge = 10;

// Uniform in 0..bound-1. The standard distributions differ between libraries; this one does not.
std::size_t draw(std::mt19937_64& random, std::size_t bound) {
  const std::uint64_t whole = std::mt19937_64::max() - std::mt19937_64::max() % bound;
  std::uint64_t value = random();
  while (value >= whole) value = random();
  return static_cast<std::size_t>(value % bound);
}

// The `degree` neighbors of each node in a flat table, in any order.
class NeighborTable {
 public:
  // Begins with the circulant graph of the smallest shifts over randomly permuted nodes, which is
  // connected and regular.
  NeighborTable(int nodes, int degree, std::mt19937_64& random)
      : degree_(static_cast<std::size_t>(degree)),
        table_(static_cast<std::size_t>(nodes) * degree_) {
    std::vector<int> label(static_cast<std::size_t>(nodes));
    std::iota(label.begin(), label.end(), 0);
    for (std::size_t i = label.size(); i > 1; --i) std::swap(label[i - 1], label[draw(random, i)]);

    const auto at = [&](std::size_t i) { return label[i % label.size()]; };
    for (std::size_t i = 0; i < label.size(); ++i) {
      const auto row = this->row(label[i]);
      std::size_t slot = 0;
      for (std::size_t shift = 1; shift <= degree_ / 2; ++shift) {
        row[slot++] = at(i + shift);
        row[slot++] = at(i + label.size() - shift);
      }
      if (degree_ % 2 == 1) row[slot] = at(i + label.size() / 2);
    }
  }

  // Replaces two random edges a-b and c-d by a-d and c-b, unless that makes a self-loop or a
  // duplicate. Keeps every degree.
  void try_switch(std::mt19937_64& random) {
    const std::size_t first = draw(random, table_.size());
    const std::size_t second = draw(random, table_.size());
    const int a = static_cast<int>(first / degree_);
    const int c = static_cast<int>(second / degree_);
    const int b = table_[first];
    const int d = table_[second];
    if (a == c || b == d || a == d || c == b || has(a, d) || has(c, b)) return;
    table_[first] = d;
    table_[second] = b;
    *std::find(row(b).begin(), row(b).end(), a) = c;
    *std::find(row(d).begin(), row(d).end(), c) = a;
  }

  bool is_connected() {
    std::vector<bool> seen(table_.size() / degree_, false);
    std::vector<int> pending{0};
    seen[0] = true;
    std::size_t reached = 1;
    while (!pending.empty()) {
      const int node = pending.back();
      pending.pop_back();
      for (const int next : row(node)) {
        if (seen[static_cast<std::size_t>(next)]) continue;
        seen[static_cast<std::size_t>(next)] = true;
        ++reached;
        pending.push_back(next);
      }
    }
    return reached == seen.size();
  }

  std::size_t slots() const { return table_.size(); }

  std::vector<Edge> edges() const {
    std::vector<Edge> edges;
    edges.reserve(table_.size());
    for (std::size_t slot = 0; slot < table_.size(); ++slot) {
      edges.push_back({static_cast<int>(slot / degree_), table_[slot]});
    }
    return edges;
  }

 private:
  std::span<int> row(int node) {
    return {table_.data() + static_cast<std::size_t>(node) * degree_, degree_};
  }
  bool has(int node, int neighbor) {
    const auto neighbors = row(node);
    return std::find(neighbors.begin(), neighbors.end(), neighbor) != neighbors.end();
  }

  std::size_t degree_;
  std::vector<int> table_;
};

Status check(int nodes, int degree) {
  const auto refuse = [&](const char* why) {
    return Status(Code::kInvalidArgument,
                  fmt::format("there is no connected {}-regular graph over {} nodes: {}", degree,
                              nodes, why));
  };
  if (degree >= nodes) return refuse("the degree must be below the number of nodes");
  if (degree % 2 == 1 && nodes % 2 == 1) return refuse("degree * nodes must be even");
  if (degree == 0 && nodes > 1) return refuse("the degree must be at least 1");
  if (degree == 1 && nodes > 2) return refuse("the degree must be at least 2");
  return Status::ok();
}

}  // namespace

Result<std::vector<Edge>> random_regular_edges(int nodes, int degree, std::uint64_t seed) {
  DUNLIN_TRY(check(nodes, degree));
  if (degree == 0) return std::vector<Edge>{};

  std::mt19937_64 random(seed);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    NeighborTable table(nodes, degree, random);
    // A connected 2-regular graph is one cycle, and the random permutation already makes it any
    // cycle. Switching would only cut it into pieces.
    if (degree > 2) {
      const std::size_t switches = table.slots() / 2 * kSwitchesPerEdge;
      for (std::size_t i = 0; i < switches; ++i) table.try_switch(random);
    }
    if (table.is_connected()) return table.edges();
  }
  return Status(Code::kInternal,
                fmt::format("no connected {}-regular graph over {} nodes found in {} attempts "
                            "with seed {}",
                            degree, nodes, kAttempts, seed));
}

}  // namespace dunlin::collective
