#include "collectives/graph/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/graph/properties.h"

namespace dunlin::collective {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Graph make(std::string_view spec, int nodes) {
  auto graph = make_graph(spec, nodes);
  EXPECT_TRUE(graph.is_ok()) << graph.status().to_string();
  return std::move(graph).value();
}

std::string error_of(std::string_view spec, int nodes) {
  return make_graph(spec, nodes).status().to_string();
}

TEST(GraphValue, DropsSelfLoopsAndDuplicatesAndSorts) {
  const Edge edges[] = {{0, 2}, {0, 1}, {2, 2}, {0, 2}, {2, 0}, {1, 0}, {1, 0}};
  const Graph graph = Graph::from_edges(3, edges, "test").value();
  EXPECT_EQ(graph.edges(), 4u);
  EXPECT_THAT(graph.out_neighbors(0), ElementsAre(1, 2));
  EXPECT_THAT(graph.in_neighbors(0), ElementsAre(1, 2));
  EXPECT_THAT(graph.out_neighbors(2), ElementsAre(0));
  EXPECT_TRUE(graph.has_edge(1, 0));
  EXPECT_FALSE(graph.has_edge(1, 2));
}

TEST(GraphValue, RefusesEdgesBeyondTheNodes) {
  const Edge edges[] = {{0, 3}};
  EXPECT_EQ(Graph::from_edges(3, edges, "test").status().to_string(),
            "out_of_range: graph 'test': edge 0 -> 3 is outside 0..2");
  EXPECT_EQ(Graph::from_edges(0, {}, "test").status().code(), Code::kInvalidArgument);
}

TEST(Generators, Neighbors) {
  EXPECT_THAT(make("ring", 5).out_neighbors(4), ElementsAre(0));
  EXPECT_THAT(make("bidirectional-ring", 5).out_neighbors(0), ElementsAre(1, 4));
  EXPECT_THAT(make("chain", 5).out_neighbors(4), ElementsAre(3));
  EXPECT_THAT(make("star", 4).out_neighbors(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(make("star", 4).out_neighbors(3), ElementsAre(0));
  EXPECT_THAT(make("root-expander", 25).out_neighbors(22), ElementsAre(2, 23));
  EXPECT_THAT(make("root-expander", 24).out_neighbors(0), ElementsAre(1, 4));
  EXPECT_THAT(make("exponential", 10).out_neighbors(0), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(make("hypercube", 8).out_neighbors(5), ElementsAre(1, 4, 7));
  EXPECT_THAT(make("mesh:2x3", 6).out_neighbors(4), ElementsAre(1, 3, 5));
  EXPECT_THAT(make("torus:3x4", 12).out_neighbors(0), ElementsAre(1, 3, 4, 8));
}

TEST(Generators, DegreesOfRegularGraphs) {
  EXPECT_EQ(regular_degree(make("complete", 9)), 8);
  EXPECT_EQ(regular_degree(make("ring", 9)), 1);
  EXPECT_EQ(regular_degree(make("bidirectional-ring", 9)), 2);
  EXPECT_EQ(regular_degree(make("root-expander", 9)), 2);
  EXPECT_EQ(regular_degree(make("exponential", 9)), 4);
  EXPECT_EQ(regular_degree(make("torus", 25)), 4);
  EXPECT_EQ(regular_degree(make("torus:2x4", 8)), 3);
  EXPECT_EQ(regular_degree(make("hypercube", 16)), 4);
  EXPECT_EQ(regular_degree(make("star", 9)), std::nullopt);
  EXPECT_EQ(regular_degree(make("mesh", 9)), std::nullopt);
}

TEST(Generators, ConnectedForEveryNodeCount) {
  for (const auto& family : graph_families()) {
    if (family.name == "file" || family.name == "random-regular") continue;
    for (int nodes = 1; nodes <= 64; ++nodes) {
      if (family.name == "hypercube" && (nodes & (nodes - 1)) != 0) continue;
      const Graph graph = make(family.name, nodes);
      EXPECT_EQ(graph.nodes(), nodes);
      EXPECT_TRUE(is_strongly_connected(graph)) << family.name << ' ' << nodes;
      EXPECT_EQ(graph.edges() == 0, nodes == 1) << family.name << ' ' << nodes;
    }
  }
}

TEST(Generators, RandomRegularIsRegularConnectedUndirected) {
  for (int nodes = 3; nodes <= 64; ++nodes) {
    for (const int degree : {2, 3, 4, 7}) {
      if (degree >= nodes || degree * nodes % 2 != 0) continue;
      const Graph graph = make("random-regular:" + std::to_string(degree), nodes);
      EXPECT_EQ(regular_degree(graph), degree) << nodes;
      EXPECT_TRUE(is_strongly_connected(graph)) << degree << ' ' << nodes;
      EXPECT_TRUE(is_undirected(graph)) << degree << ' ' << nodes;
    }
  }
}

TEST(Generators, RandomRegularFollowsItsSeed) {
  const auto edges_of = [](const Graph& graph) {
    std::vector<int> all;
    for (int i = 0; i < graph.nodes(); ++i) {
      all.insert(all.end(), graph.out_neighbors(i).begin(), graph.out_neighbors(i).end());
    }
    return all;
  };
  EXPECT_EQ(edges_of(make("random-regular:3:seed=7", 20)),
            edges_of(make("random-regular:3:seed=7", 20)));
  EXPECT_NE(edges_of(make("random-regular:3:seed=7", 20)),
            edges_of(make("random-regular:3:seed=8", 20)));
  // Each rank builds the graph itself, so the result must not depend on compiler or library.
  EXPECT_THAT(make("random-regular:3:seed=7", 8).out_neighbors(0), ElementsAre(5, 6, 7));
}

TEST(Generators, ImpossibleRandomRegularGraphsAreRefused) {
  EXPECT_THAT(error_of("random-regular:3", 7), HasSubstr("degree * nodes must be even"));
  EXPECT_THAT(error_of("random-regular:4", 4), HasSubstr("below the number of nodes"));
  EXPECT_THAT(error_of("random-regular:1", 4), HasSubstr("at least 2"));
  EXPECT_THAT(error_of("random-regular", 4), HasSubstr("random-regular:DEGREE"));
  EXPECT_THAT(error_of("random-regular:3:sed=1", 4), HasSubstr("'sed=1' is not seed=NUMBER"));
  EXPECT_TRUE(make_graph("random-regular:1", 2).is_ok());
  EXPECT_TRUE(make_graph("random-regular:7", 8).is_ok());
}

TEST(Generators, BadSpecsAreExplained) {
  EXPECT_EQ(
      error_of("rign", 4),
      "invalid_argument: unknown graph 'rign'; known are complete, star, ring, bidirectional-ring, "
      "chain, root-expander, exponential, mesh, torus, hypercube, random-regular, file");
  EXPECT_EQ(error_of("hypercube", 6),
            "invalid_argument: graph 'hypercube': 6 nodes; the number must be a power of two");
  EXPECT_EQ(error_of("mesh:4x2", 9),
            "invalid_argument: graph 'mesh:4x2': the shape has 8 nodes, but there are 9");
  for (const char* spec : {"mesh:4", "mesh:x", "mesh:4x", "mesh:-1x2", "mesh:0x2", "mesh:4x2x1"}) {
    EXPECT_THAT(error_of(spec, 8), HasSubstr("is not a shape such as 4x2")) << spec;
  }
  EXPECT_THAT(error_of("ring:3", 8), HasSubstr("'ring' takes no argument"));
  EXPECT_THAT(error_of("ring", 0), HasSubstr("0 nodes are outside"));
  EXPECT_THAT(error_of("ring", -2), HasSubstr("-2 nodes are outside"));
  EXPECT_THAT(error_of("file:", 8), HasSubstr("the path is missing"));
  EXPECT_EQ(make_graph("complete", 100'000).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(make_graph("mesh:100000x100000", 0).status().code(), Code::kInvalidArgument);
}

TEST(Generators, AShapeSaysTheNumberOfNodes) {
  EXPECT_EQ(make("torus:5x5", 0).nodes(), 25);
  EXPECT_EQ(make("mesh", 12).grid(), (GridShape{3, 4}));
  EXPECT_EQ(make("mesh", 7).grid(), (GridShape{1, 7}));
}

TEST(Properties, Diameter) {
  const auto exact = [](std::string_view spec, int nodes) {
    return diameter(make(spec, nodes))->lower;
  };
  EXPECT_EQ(exact("complete", 9), 1);
  EXPECT_EQ(exact("ring", 9), 8);
  EXPECT_EQ(exact("chain", 9), 8);
  EXPECT_EQ(exact("star", 9), 2);
  EXPECT_EQ(exact("mesh:3x4", 12), 5);
  EXPECT_EQ(exact("hypercube", 32), 5);
  EXPECT_EQ(exact("root-expander", 25), 8);
  EXPECT_EQ(exact("complete", 1), 0);
}

TEST(Properties, DiameterOfALargeGraphIsBounded) {
  const Graph graph = make("mesh:6x7", 42);
  const Diameter exact = *diameter(graph);
  const Diameter bounds = *diameter(graph, 10);
  EXPECT_TRUE(exact.is_exact());
  EXPECT_FALSE(bounds.is_exact());
  EXPECT_LE(bounds.lower, exact.lower);
  EXPECT_GE(bounds.upper, exact.upper);
}

TEST(Properties, OneWayReachabilityIsNotConnected) {
  const Edge edges[] = {{0, 1}, {1, 2}, {0, 2}};
  const Graph graph = Graph::from_edges(3, edges, "test").value();
  EXPECT_FALSE(is_strongly_connected(graph));
  EXPECT_EQ(diameter(graph), std::nullopt);
}

TEST(Properties, CirculantShifts) {
  EXPECT_EQ(circulant_shifts(make("exponential", 11)), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(circulant_shifts(make("bidirectional-ring", 7)), (std::vector<int>{1, 6}));
  EXPECT_EQ(circulant_shifts(make("complete", 1)), std::vector<int>{});
  EXPECT_EQ(circulant_shifts(make("chain", 5)), std::nullopt);
  EXPECT_EQ(circulant_shifts(make("torus", 9)), std::nullopt);
  EXPECT_EQ(circulant_shifts(make("star", 5)), std::nullopt);
}

}  // namespace
}  // namespace dunlin::collective
