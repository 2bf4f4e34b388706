#include "collectives/graph/dynamic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace dunlin::collective {
namespace {

// The hop of a step: 1, 2, 4, ... below `count`. 0 if there is no other node.
int exponential_hop(int count, std::uint64_t step) {
  if (count < 2) return 0;
  const int hops = std::bit_width(static_cast<unsigned>(count - 1));
  return 1 << (step % static_cast<std::uint64_t>(hops));
}

int ring_hop(int count, std::uint64_t) {
  return count < 2 ? 0 : 1;
}

// The peers in a circle of `count` places in which each place sends `hop` places ahead. Without a
// hop there are none.
StepPeers around(int count, int place, int hop) {
  if (hop == 0) return {};
  return {{(place + hop) % count}, {(place - hop + count) % count}};
}

// The node that `node` sends to in this step.
int target(const Graph& graph, int node, std::uint64_t step) {
  const auto neighbors = graph.out_neighbors(node);
  const auto count = static_cast<std::uint64_t>(neighbors.size());
  const auto distance = [&](int other) { return (other - node + graph.nodes()) % graph.nodes(); };
  std::vector<int> clockwise(neighbors.begin(), neighbors.end());
  std::sort(clockwise.begin(), clockwise.end(),
            [&](int a, int b) { return distance(a) < distance(b); });
  return clockwise[step % count];
}

template <typename Hop>
Result<StepPeers> inner_outer(int nodes, int per_machine, int node, std::uint64_t step, Hop hop) {
  if (per_machine < 1 || nodes < 2 || nodes % per_machine != 0 || node < 0 || node >= nodes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("node {} of {} with {} nodes per machine: machines must be full and "
                              "hold at least two nodes together",
                              node, nodes, per_machine));
  }
  const int machines = nodes / per_machine;
  if (machines > 1 && per_machine == 2) {
    return Status(Code::kInvalidArgument,
                  "with two nodes per machine, one of them sends to another machine in every step, "
                  "so the two never average");
  }
  const int machine = node / per_machine;
  const int local = node % per_machine;
  const int outgoing = machines == 1
                           ? per_machine
                           : static_cast<int>(step % static_cast<std::uint64_t>(per_machine));
  if (local == outgoing) {
    // A node sends to another machine once in `per_machine` steps: count the hops at that pace.
    const std::uint64_t round = step / static_cast<std::uint64_t>(per_machine);
    StepPeers peers = around(machines, machine, hop(machines, round));
    for (int* const peer : {&peers.to.front(), &peers.from.front()}) {
      *peer = *peer * per_machine + local;
    }
    return peers;
  }
  // The nodes that stay within their machine are numbered without the outgoing one.
  const int staying = outgoing < per_machine ? per_machine - 1 : per_machine;
  const int place = local > outgoing ? local - 1 : local;
  StepPeers peers = around(staying, place, hop(staying, step));
  for (auto* const side : {&peers.to, &peers.from}) {
    for (int& peer : *side) {
      peer = machine * per_machine + (peer >= outgoing ? peer + 1 : peer);
    }
  }
  return peers;
}

}  // namespace

StepPeers one_peer(const Graph& graph, int node, std::uint64_t step) {
  StepPeers peers;
  if (graph.out_degree(node) > 0) peers.to.push_back(target(graph, node, step));
  for (const int other : graph.in_neighbors(node)) {
    if (target(graph, other, step) == node) peers.from.push_back(other);
  }
  return peers;
}

StepPeers one_peer_exponential(int nodes, int node, std::uint64_t step) {
  return around(nodes, node, exponential_hop(nodes, step));
}

Result<StepPeers> inner_outer_ring(int nodes, int per_machine, int node, std::uint64_t step) {
  return inner_outer(nodes, per_machine, node, step, ring_hop);
}

Result<StepPeers> inner_outer_exponential(int nodes, int per_machine, int node,
                                          std::uint64_t step) {
  return inner_outer(nodes, per_machine, node, step, exponential_hop);
}

}  // namespace dunlin::collective
