// Graphs that change from step to step. In each step a node has at most one peer to send to, so
// that a neighbor average costs the same at any degree (BlueFog, sections II and VII; Ying et al.,
// "Exponential Graph is Provably Efficient for Decentralized Deep Learning", 2021).
//
// These are pure functions of node and step, so all nodes agree without communication: `b` is in
// the `to` of `a` exactly if `a` is in the `from` of `b`. The nodes of a machine (BlueFog's word
// for a host) have consecutive numbers: machine m holds the nodes from m * per_machine on.
// Thread-safe. Steps count from 0.
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

// Each node sends to its out-neighbors in the graph one after the other, clockwise, one per step.
// Several nodes may send to the same node in one step, or none: `from` has any size.
StepPeers one_peer(const Graph& graph, int node, std::uint64_t step);

// One-peer exponential graph: the distances 1, 2, 4, ... below `nodes`, one per step.
StepPeers one_peer_exponential(int nodes, int node, std::uint64_t step);

// In each step one node of every machine sends to the next machine, each node in turn; the other
// nodes of a machine form a ring. Returns kInvalidArgument unless all machines are full and there
// are at least two nodes. Several machines of two nodes each are refused too, because the two nodes
// of a machine would never average.
Result<StepPeers> inner_outer_ring(int nodes, int per_machine, int node, std::uint64_t step);
// The same with the distances of exponential graphs, between machines and within them.
Result<StepPeers> inner_outer_exponential(int nodes, int per_machine, int node, std::uint64_t step);

}  // namespace dunlin::collective
