#include "collectives/graph/edge_list.h"

#include <gtest/gtest.h>

#include <fstream>

#include "collectives/graph/generators.h"

namespace dunlin::collective {
namespace {

class EdgeListTest : public testing::Test {
 protected:
  const std::string path_ = testing::TempDir() + "edge_list_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name() + ".txt";

  Result<EdgeList> read(std::string_view text, int nodes = 0) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_edge_list(path_, nodes);
  }
  // Returns the error message without the path.
  std::string error_of(std::string_view text, int nodes = 0) {
    const Status status = read(text, nodes).status();
    EXPECT_EQ(status.code(), Code::kCorrupted);
    const std::string message(status.message());
    EXPECT_EQ(message.substr(0, path_.size()), path_);
    return message.substr(path_.size());
  }
};

TEST_F(EdgeListTest, ReadsCommentsBlanksAndBothLineEnds) {
  const EdgeList list =
      read("# a graph\n\n  nodes 3 # three\n0 1\r\n\t1  2# last\n2 2\n0 1").value();
  EXPECT_EQ(list.nodes, 3);
  EXPECT_EQ(list.edges, (std::vector<Edge>{{0, 1}, {1, 2}, {2, 2}, {0, 1}}));
}

TEST_F(EdgeListTest, TheCallerMaySayTheNumberOfNodes) {
  EXPECT_EQ(read("0 1\n", 5)->nodes, 5);
  EXPECT_EQ(read("nodes 5\n0 1\n", 5)->nodes, 5);
  EXPECT_EQ(read("nodes 2\n")->nodes, 2);
}

TEST_F(EdgeListTest, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("nodes 3\n0 x\n"), ":2:3: 'x' is not a node number");
  EXPECT_EQ(error_of("nodes 3\n0 -1\n"), ":2:3: '-1' is not a node number");
  EXPECT_EQ(error_of("nodes 3\n\n  0 3\n"), ":3:5: node 3 is outside 0..2");
  EXPECT_EQ(error_of("nodes 3\n0\n"), ":2:2: the edge's second node is missing");
  EXPECT_EQ(error_of("nodes 3\n0 1 0.5\n"), ":2:5: unexpected '0.5'");
  EXPECT_EQ(error_of("nodes 3\n0 99999999999\n"), ":2:3: '99999999999' is not a node number");
  EXPECT_EQ(error_of(std::string_view("nodes 3\n0 1\0\n", 13)).substr(0, 6), ":2:3: ");
  EXPECT_EQ(error_of("nodes x\n"), ":1:7: 'x' is not a number of nodes");
  EXPECT_EQ(error_of("nodes 3\nnodes 3\n"), ":2:1: a second 'nodes' line");
  EXPECT_EQ(error_of("0 1\nnodes 3\n", 3), ":2:1: 'nodes' must stand before the first edge");
  EXPECT_EQ(error_of("nodes 3\n", 4), ":1:7: the file has 3 nodes, but there are 4");
  EXPECT_EQ(error_of("0 1\n"), ":1:1: an edge before the 'nodes' line, and no node count is given");
  EXPECT_EQ(error_of(""), ": has no 'nodes' line, and no node count is given");
}

TEST_F(EdgeListTest, AMissingFileIsNamed) {
  EXPECT_EQ(read_edge_list("/nowhere/graph", 3).status().to_string(),
            "not_found: /nowhere/graph: No such file or directory");
  EXPECT_TRUE(read_edge_list("/", 3).status().is_error());
  EXPECT_EQ(write_edge_list(make_graph("ring", 3).value(), "/nowhere/graph").code(),
            Code::kNotFound);
}

TEST_F(EdgeListTest, WhatIsWrittenIsReadBack) {
  const Graph graph = make_graph("random-regular:3:seed=5", 20).value();
  ASSERT_TRUE(write_edge_list(graph, path_).is_ok());
  const Graph back = make_graph("file:" + path_, 0).value();
  ASSERT_EQ(back.nodes(), graph.nodes());
  for (int i = 0; i < graph.nodes(); ++i) {
    EXPECT_TRUE(std::ranges::equal(back.out_neighbors(i), graph.out_neighbors(i))) << i;
  }
}

}  // namespace
}  // namespace dunlin::collective
