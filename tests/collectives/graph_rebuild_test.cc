#include "collectives/graph/rebuild.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"

namespace dunlin::collective {
namespace {

using testing::ElementsAre;

std::vector<int> all_but(int nodes, int gone) {
  std::vector<int> survivors;
  for (int i = 0; i < nodes; ++i) {
    if (i != gone) survivors.push_back(i);
  }
  return survivors;
}

TEST(RebuildGraph, KeepsTheKindForFewerNodes) {
  const Graph graph = make_graph("root-expander", 9).value();
  const Graph rebuilt = rebuild_graph(graph, all_but(9, 4)).value();
  EXPECT_EQ(rebuilt.nodes(), 8);
  EXPECT_EQ(rebuilt.spec(), "root-expander");
  EXPECT_THAT(rebuilt.out_neighbors(0), ElementsAre(1, 2));
}

TEST(RebuildGraph, AMeshGetsANewShape) {
  const Graph graph = make_graph("mesh:3x3", 9).value();
  EXPECT_EQ(rebuild_graph(graph, all_but(9, 0))->grid(), (GridShape{2, 4}));
}

TEST(RebuildGraph, AHypercubeLosesACorner) {
  const Graph graph = make_graph("hypercube", 8).value();
  const Graph rebuilt = rebuild_graph(graph, all_but(8, 0)).value();
  EXPECT_EQ(rebuilt.nodes(), 7);
  EXPECT_EQ(rebuilt.edges(), 24u - 6u);
  EXPECT_THAT(rebuilt.out_neighbors(0), ElementsAre(2, 4));  // it was node 1, which sent to 3 and 5
  // With four survivors it is a hypercube again.
  EXPECT_EQ(rebuild_graph(rebuilt, std::vector<int>{0, 1, 2, 3})->edges(), 8u);
}

TEST(RebuildGraph, AFileThatFallsApartGetsARing) {
  const std::string path =
      testing::TempDir() + "rebuild_graph_" + std::to_string(getpid()) + ".txt";
  std::ofstream(path) << "nodes 4\n0 1\n1 2\n2 3\n3 0\n";
  const Graph graph = make_graph("file:" + path, 4).value();
  const Graph rebuilt = rebuild_graph(graph, std::vector<int>{0, 2, 3}).value();
  EXPECT_TRUE(is_strongly_connected(rebuilt));
  EXPECT_EQ(rebuilt.edges(), 3u);
}

TEST(RebuildGraph, EveryKindStaysConnectedDownToOneNode) {
  for (const char* spec :
       {"complete", "star", "ring", "bidirectional-ring", "chain", "root-expander", "exponential",
        "mesh:4x4", "torus:4x4", "hypercube", "random-regular:3"}) {
    Graph graph = make_graph(spec, 16).value();
    for (int nodes = 15; nodes >= 1; --nodes) {
      graph = rebuild_graph(graph, all_but(nodes + 1, nodes / 2)).value();
      EXPECT_EQ(graph.nodes(), nodes);
      EXPECT_TRUE(is_strongly_connected(graph)) << spec << ' ' << nodes;
    }
  }
}

TEST(ResizeGraph, EveryKindGrowsAndStaysConnected) {
  for (const char* spec :
       {"complete", "star", "ring", "bidirectional-ring", "chain", "root-expander", "exponential",
        "mesh:2x2", "torus:2x2", "hypercube", "random-regular:3"}) {
    for (int nodes = 1; nodes <= 20; ++nodes) {
      const auto graph = resize_graph(spec, nodes);
      ASSERT_TRUE(graph.is_ok()) << spec << ' ' << nodes << ": " << graph.status().to_string();
      EXPECT_EQ(graph->nodes(), nodes);
      EXPECT_TRUE(is_strongly_connected(*graph)) << spec << ' ' << nodes;
    }
  }
  EXPECT_EQ(resize_graph("ring", 7).value().edges(), 7u);
  EXPECT_EQ(resize_graph("hypercube", 8).value().spec(), "hypercube");
  EXPECT_EQ(resize_graph("hypercube", 7).value().spec(), "exponential");
  EXPECT_EQ(resize_graph("file:/nowhere", 5).value().spec(), "exponential");
}

TEST(RebuildGraph, BadSurvivorsAreRefused) {
  const Graph graph = make_graph("ring", 4).value();
  for (const auto& survivors : std::vector<std::vector<int>>{{}, {1, 1}, {2, 1}, {0, 4}, {-1}}) {
    EXPECT_EQ(rebuild_graph(graph, survivors).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace dunlin::collective
