#include "collectives/graph/properties.h"

#include <algorithm>

namespace dunlin::collective {
namespace {

// Number of searches for the bounds on a large graph's diameter.
constexpr int kSweeps = 8;

enum class Direction { kOut, kIn };

// Breadth-first search. Reuses its buffers from search to search.
class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph), distance_(size()) { order_.reserve(size()); }

  // Returns the largest distance from `start` (kOut) or to `start` (kIn) among the reached nodes.
  int run(int start, Direction direction) {
    std::fill(distance_.begin(), distance_.end(), -1);
    order_.assign(1, start);
    distance_[static_cast<std::size_t>(start)] = 0;
    for (std::size_t at = 0; at < order_.size(); ++at) {
      const int node = order_[at];
      const int next_distance = distance_[static_cast<std::size_t>(node)] + 1;
      const auto neighbors =
          direction == Direction::kOut ? graph_.out_neighbors(node) : graph_.in_neighbors(node);
      for (const int neighbor : neighbors) {
        int& distance = distance_[static_cast<std::size_t>(neighbor)];
        if (distance >= 0) continue;
        distance = next_distance;
        order_.push_back(neighbor);
      }
    }
    return distance_[static_cast<std::size_t>(farthest())];
  }
  // Both refer to the last run.
  bool reached_all() const { return order_.size() == size(); }
  int farthest() const { return order_.back(); }

 private:
  std::size_t size() const { return static_cast<std::size_t>(graph_.nodes()); }

  const Graph& graph_;
  std::vector<int> distance_;
  std::vector<int> order_;
};

int exact_diameter(const Graph& graph) {
  Search search(graph);
  int largest = 0;
  for (int node = 0; node < graph.nodes(); ++node) {
    largest = std::max(largest, search.run(node, Direction::kOut));
  }
  return largest;
}

// For any node v: ecc_out(v), ecc_in(v) <= diameter <= ecc_in(v) + ecc_out(v). The next search
// begins at the farthest node, which makes the lower bound good. A node halfway would improve the
// upper bound, but there is no cheap way to find one in a directed graph.
Diameter bounded_diameter(const Graph& graph) {
  Search search(graph);
  Diameter bounds{0, 2 * graph.nodes()};
  int node = 0;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const int in = search.run(node, Direction::kIn);
    const int out = search.run(node, Direction::kOut);
    bounds.lower = std::max({bounds.lower, in, out});
    bounds.upper = std::min({bounds.upper, in + out, graph.nodes() - 1});
    node = search.farthest();
  }
  return bounds;
}

}  // namespace

DegreeRange degree_range(const Graph& graph) {
  DegreeRange range{graph.in_degree(0), graph.in_degree(0), graph.out_degree(0),
                    graph.out_degree(0)};
  for (int node = 1; node < graph.nodes(); ++node) {
    range.min_in = std::min(range.min_in, graph.in_degree(node));
    range.max_in = std::max(range.max_in, graph.in_degree(node));
    range.min_out = std::min(range.min_out, graph.out_degree(node));
    range.max_out = std::max(range.max_out, graph.out_degree(node));
  }
  return range;
}

std::optional<int> regular_degree(const Graph& graph) {
  const DegreeRange range = degree_range(graph);
  const int degree = range.min_in;
  const bool is_regular =
      range.max_in == degree && range.min_out == degree && range.max_out == degree;
  return is_regular ? std::optional(degree) : std::nullopt;
}

bool is_undirected(const Graph& graph) {
  for (int node = 0; node < graph.nodes(); ++node) {
    if (!std::ranges::equal(graph.in_neighbors(node), graph.out_neighbors(node))) return false;
  }
  return true;
}

bool is_strongly_connected(const Graph& graph) {
  Search search(graph);
  search.run(0, Direction::kOut);
  if (!search.reached_all()) return false;
  search.run(0, Direction::kIn);
  return search.reached_all();
}

std::optional<std::vector<int>> circulant_shifts(const Graph& graph) {
  const auto first = graph.out_neighbors(0);
  const std::vector<int> shifts(first.begin(), first.end());
  for (int node = 1; node < graph.nodes(); ++node) {
    const auto row = graph.out_neighbors(node);
    if (row.size() != shifts.size()) return std::nullopt;
    // The shifts ascend; those that wrap around are the smallest neighbors.
    const auto wraps = std::lower_bound(shifts.begin(), shifts.end(), graph.nodes() - node);
    const auto unwrapped = static_cast<std::size_t>(shifts.end() - wraps);
    for (std::size_t k = 0; k < row.size(); ++k) {
      const std::size_t shift = (k + shifts.size() - unwrapped) % shifts.size();
      if (row[k] != (k < unwrapped ? shifts[shift] + node - graph.nodes() : shifts[shift] + node)) {
        return std::nullopt;
      }
    }
  }
  return shifts;
}

std::optional<Diameter> diameter(const Graph& graph, std::size_t work) {
  if (!is_strongly_connected(graph)) return std::nullopt;
  if (circulant_shifts(graph)) {
    const int radius = Search(graph).run(0, Direction::kOut);
    return Diameter{radius, radius};
  }
  const std::size_t visits = graph.edges() + static_cast<std::size_t>(graph.nodes());
  if (visits > work / static_cast<std::size_t>(graph.nodes())) return bounded_diameter(graph);
  const int exact = exact_diameter(graph);
  return Diameter{exact, exact};
}

}  // namespace dunlin::collective
