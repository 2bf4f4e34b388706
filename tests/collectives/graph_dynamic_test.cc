// Graphs that change from step to step: all nodes agree on the edges of a step, each node sends to
// one node at most, and after some steps every node is reached.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "collectives/graph/dynamic.h"
#include "collectives/graph/generators.h"

namespace dunlin::collective {
namespace {

using PeersOf = std::function<StepPeers(int node, std::uint64_t step)>;
using Edges = std::set<std::pair<int, int>>;

Edges edges_of(int nodes, std::uint64_t step, const PeersOf& peers_of) {
  Edges sent;
  Edges received;
  for (int node = 0; node < nodes; ++node) {
    const StepPeers peers = peers_of(node, step);
    EXPECT_LE(peers.to.size(), 1u) << "node " << node << " step " << step;
    for (const int to : peers.to) sent.insert({node, to});
    for (const int from : peers.from) received.insert({from, node});
  }
  EXPECT_EQ(sent, received) << "step " << step;
  for (const auto& [from, to] : sent) {
    EXPECT_TRUE(from != to && to >= 0 && to < nodes) << from << " -> " << to;
  }
  return sent;
}

// True if information from node 0 reaches all nodes within `steps` steps.
bool spreads(int nodes, std::uint64_t steps, const PeersOf& peers_of) {
  std::set<int> known{0};
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::set<int> reached;
    for (const auto& [from, to] : edges_of(nodes, step, peers_of)) {
      if (known.contains(from)) reached.insert(to);
    }
    known.merge(reached);
  }
  return known.size() == static_cast<std::size_t>(nodes);
}

TEST(OnePeer, GoesThroughTheOutNeighborsClockwise) {
  const Graph graph = make_graph("exponential", 8).value();
  for (std::uint64_t step = 0; step < 6; ++step) {
    EXPECT_EQ(one_peer(graph, 6, step).to, (std::vector<int>{(6 + (1 << (step % 3))) % 8}));
  }
  EXPECT_EQ(one_peer(graph, 0, 1).from, (std::vector<int>{6}));
}

TEST(OnePeer, EveryGraphIsAgreedOnAndSpreads) {
  for (const char* spec : {"ring", "exponential", "star", "complete", "chain"}) {
    for (const int nodes : {2, 3, 5, 8}) {
      const Graph graph = make_graph(spec, nodes).value();
      EXPECT_TRUE(spreads(
          nodes, 100, [&](int node, std::uint64_t step) { return one_peer(graph, node, step); }))
          << spec << " " << nodes;
    }
  }
}

// If n is a power of two, log2(n) steps suffice. The graph has its name from that.
TEST(OnePeer, TheExponentialGraphReachesAllInLogarithmicTime) {
  const auto peers_of = [](int nodes) {
    return
        [nodes](int node, std::uint64_t step) { return one_peer_exponential(nodes, node, step); };
  };
  EXPECT_TRUE(spreads(16, 4, peers_of(16)));
  EXPECT_FALSE(spreads(16, 3, peers_of(16)));
  EXPECT_TRUE(spreads(11, 8, peers_of(11)));
  EXPECT_TRUE(one_peer_exponential(1, 0, 3).to.empty());
}

TEST(InnerOuter, OneOfEachMachineGoesOutInEveryStep) {
  const struct {
    int nodes;
    int per_machine;
  } shapes[] = {{2, 1}, {2, 2}, {6, 3}, {8, 4}, {12, 4}, {15, 3}, {4, 4}, {5, 1}};
  for (const auto& [nodes, per_machine] : shapes) {
    for (const auto& generate : {inner_outer_ring, inner_outer_exponential}) {
      const PeersOf peers_of = [&, nodes = nodes, per_machine = per_machine](int node,
                                                                             std::uint64_t step) {
        return generate(nodes, per_machine, node, step).value();
      };
      for (std::uint64_t step = 0; step < 20; ++step) {
        int crossing = 0;
        for (const auto& [from, to] : edges_of(nodes, step, peers_of)) {
          if (from / per_machine != to / per_machine) ++crossing;
        }
        const int machines = nodes / per_machine;
        EXPECT_EQ(crossing, machines == 1 ? 0 : machines) << nodes << "/" << per_machine;
      }
      EXPECT_TRUE(spreads(nodes, 200, peers_of)) << nodes << "/" << per_machine;
    }
  }
}

TEST(InnerOuter, WhatCantBeIsRefused) {
  EXPECT_EQ(inner_outer_ring(4, 2, 0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(inner_outer_ring(7, 2, 0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(inner_outer_ring(1, 1, 0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(inner_outer_exponential(4, 0, 0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(inner_outer_exponential(6, 3, 6, 0).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace dunlin::collective
