#include "collectives/graph/rebuild.h"

#include <fmt/format.h>

#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"

namespace dunlin::collective {
namespace {

Status check_survivors(const Graph& graph, std::span<const int> survivors) {
  if (survivors.empty()) return {Code::kInvalidArgument, "a graph needs at least one survivor"};
  for (std::size_t k = 0; k < survivors.size(); ++k) {
    const bool ascends = k == 0 || survivors[k - 1] < survivors[k];
    if (!ascends || survivors[k] < 0 || survivors[k] >= graph.nodes()) {
      return {Code::kInvalidArgument,
              fmt::format("survivor {} (position {}) of graph '{}': survivors must ascend and lie "
                          "within 0..{}",
                          survivors[k], k, graph.spec(), graph.nodes() - 1)};
    }
  }
  return Status::ok();
}

// Returns the spec without what ties it to one number of nodes. Empty if nothing is left.
std::string_view scalable_spec(std::string_view spec) {
  const std::string_view name = spec.substr(0, spec.find(':'));
  if (name == "file") return {};
  return name == "mesh" || name == "torus" ? name : spec;
}

// Returns the edges among `survivors`, with the survivors' new numbers.
std::vector<Edge> induced_edges(const Graph& graph, std::span<const int> survivors) {
  std::vector<int> number(static_cast<std::size_t>(graph.nodes()), -1);
  for (std::size_t k = 0; k < survivors.size(); ++k) {
    number[static_cast<std::size_t>(survivors[k])] = static_cast<int>(k);
  }
  std::vector<Edge> edges;
  for (const int node : survivors) {
    const int from = number[static_cast<std::size_t>(node)];
    for (const int neighbor : graph.out_neighbors(node)) {
      const int to = number[static_cast<std::size_t>(neighbor)];
      if (to >= 0) edges.push_back({from, to});
    }
  }
  return edges;
}

}  // namespace

Result<Graph> rebuild_graph(const Graph& graph, std::span<const int> survivors) {
  DUNLIN_TRY(check_survivors(graph, survivors));
  const int nodes = static_cast<int>(survivors.size());
  if (const std::string_view spec = scalable_spec(graph.spec()); !spec.empty()) {
    if (auto same = make_graph(spec, nodes)) return same;
  }
  std::vector<Edge> edges = induced_edges(graph, survivors);
  DUNLIN_ASSIGN(Graph induced, Graph::from_edges(nodes, edges, graph.spec()));
  if (is_strongly_connected(induced)) return induced;
  for (int k = 0; k < nodes; ++k) edges.push_back({k, (k + 1) % nodes});
  return Graph::from_edges(nodes, edges, graph.spec());
}

Result<Graph> resize_graph(std::string_view spec, int nodes) {
  if (const std::string_view same = scalable_spec(spec); !same.empty()) {
    auto made = make_graph(same, nodes);
    if (made && is_strongly_connected(*made)) return made;
  }
  return make_graph("exponential", nodes);
}

}  // namespace dunlin::collective
