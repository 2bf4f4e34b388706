// Edge lists (collectives/graph/edge_list.h). The graph of an accepted one is read again from the
// text that is made of it.
#include "collectives/graph/edge_list.h"

#include <algorithm>

#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace collective;

// A graph of more nodes takes memory and time for each, whatever its edges are.
constexpr int kMostNodes = 1 << 12;

void check(Input input) {
  const int nodes = input.take<std::int8_t>();
  const Exact text(input.rest());
  const auto list = parse_edge_list("f", text.text(), std::max(nodes, 0));
  if (!list) return;
  FUZZ_CHECK(list->nodes > 0 && (nodes <= 0 || list->nodes == nodes));
  for (const Edge& edge : list->edges) {
    FUZZ_CHECK(edge.from >= 0 && edge.from < list->nodes);
    FUZZ_CHECK(edge.to >= 0 && edge.to < list->nodes);
  }
  if (list->nodes > kMostNodes) return;
  const auto graph = Graph::from_edges(list->nodes, list->edges, "file");
  FUZZ_CHECK(graph.is_ok());
  const auto again = parse_edge_list("f", edge_list_text(*graph), 0);
  FUZZ_CHECK(again.is_ok() && again->nodes == graph->nodes());
  FUZZ_CHECK(again->edges.size() == graph->edges());
  for (const Edge& edge : again->edges) FUZZ_CHECK(graph->has_edge(edge.from, edge.to));
}

}  // namespace

std::vector<Seed> seeds() {
  const std::vector<Edge> edges{{0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 2}};
  const Graph graph = Graph::from_edges(4, edges, "file").value();
  return {text_seed("graph", '\0' + edge_list_text(graph)),
          text_seed("given_nodes", "\5# a graph\n0 1\r\n\t1  4# last\n"),
          text_seed("loops", std::string_view("\0nodes 3 # three\n2 2\n0 1\n0 1", 28))};
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dunlin::fuzz::check(dunlin::fuzz::Input(data, size));
  return 0;
}
