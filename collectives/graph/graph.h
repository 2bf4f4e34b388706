// Graph: which nodes send to which in a reduce. An edge i -> j means that node i writes its model
// into a receive queue of node j.
//
// A value: immutable once built, copied and moved freely, read by any thread. Nodes are numbered
// 0..nodes()-1; the caller decides which rank a node stands for. Both directions are stored in
// compressed rows, so that 100,000 nodes with millions of edges fit easily. Self-loops are not
// stored: the mixing matrix (mixing.h) says how much of its own model a node keeps.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace dunlin::collective {

// Limits. Both directions of 100 million edges take 800 MB, and no job connects that many pairs of
// processes.
inline constexpr int kMaxNodes = 100'000'000;
inline constexpr std::size_t kMaxEdges = 100'000'000;

struct Edge {
  int from = 0;
  int to = 0;
  bool operator==(const Edge&) const = default;
};

// The shape of a mesh or a torus: node = row * columns + column.
struct GridShape {
  int rows = 0;
  int columns = 0;
  bool operator==(const GridShape&) const = default;
};

class Graph {
 public:
  // Duplicate edges and self-loops are dropped. An edge outside 0..nodes-1, or `nodes` outside
  // 1..kMaxNodes, is an error. `spec` is the text that describes the graph (generators.h).
  static Result<Graph> from_edges(int nodes, std::span<const Edge> edges, std::string spec,
                                  std::optional<GridShape> grid = std::nullopt);

  int nodes() const { return nodes_; }
  std::size_t edges() const { return out_.neighbors.size(); }

  // In ascending order; valid as long as the graph. `node` must be in 0..nodes()-1.
  std::span<const int> out_neighbors(int node) const { return out_.row(node); }
  std::span<const int> in_neighbors(int node) const { return in_.row(node); }
  int out_degree(int node) const { return static_cast<int>(out_.row(node).size()); }
  int in_degree(int node) const { return static_cast<int>(in_.row(node).size()); }
  bool has_edge(int from, int to) const;

  const std::string& spec() const { return spec_; }
  const std::optional<GridShape>& grid() const { return grid_; }

 private:
  // The neighbors of node i are neighbors[begin[i]] .. neighbors[begin[i + 1] - 1].
  struct Rows {
    std::vector<std::size_t> begin;
    std::vector<int> neighbors;
    std::span<const int> row(int node) const {
      const auto at = static_cast<std::size_t>(node);
      return {neighbors.data() + begin[at], begin[at + 1] - begin[at]};
    }
  };
  static Rows rows_of(int nodes, std::span<const Edge> edges);
  static Rows transpose(const Rows& rows);

  Graph() = default;

  int nodes_ = 0;
  Rows out_;
  Rows in_;
  std::string spec_;
  std::optional<GridShape> grid_;
};

}  // namespace dunlin::collective
