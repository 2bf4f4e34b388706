// Graphs that change from step to step, in which each node has at most one peer to send to: what
// neighbour averages cost then doesn't depend on the degree (BlueFog, sections II and VII;
// Ying et al., "Exponential Graph is Provably Efficient for Decentralized Deep Learning", 2021).
//
// Pure functions of node and step, so that all nodes agree without a word: `b` is among the `to` of
// `a` exactly if `a` is among the `from` of `b`. Nodes of a machine are neighbours by number: node
// n is the (n % per_machine)-th of machine n / per_machine. Thread-safe; steps count from 0.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/graph/graph.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct StepPeers {
  std::vector<int> to;
  std::vector<int> from;  // ascending
};

// Each node goes through its out-neighbours in the graph, clockwise from itself, one per step. A
// step of another node may lead to the same one: `from` has none, one or several.
StepPeers one_peer(const Graph& graph, int node, std::uint64_t step);

// Distances 1, 2, 4, ... below `nodes`, one per step: the one-peer exponential graph.
StepPeers one_peer_exponential(int nodes, int node, std::uint64_t step);

// In each step one node of every machine, each in turn, has its peer in the next machine, and the
// others form a ring within theirs. kInvalidArgument unless whole machines make up the nodes, there
// are two nodes at least, and several machines don't have two nodes each: those never meet.
Result<StepPeers> inner_outer_ring(int nodes, int per_machine, int node, std::uint64_t step);
// The same with the distances of exponential graphs, between machines and within them.
Result<StepPeers> inner_outer_exponential(int nodes, int per_machine, int node, std::uint64_t step);

}  // namespace dunlin::collective
