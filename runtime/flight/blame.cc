#include "runtime/flight/blame.h"

#include <map>
#include <utility>

namespace dunlin::flight {
namespace {

// What is still passed on after so many ranks is charged where it is: in a circle of ranks that
// wait for each other almost all the time, it would go around for long.
constexpr int kMostHops = 64;
// Parts of the period that are not followed any more.
constexpr double kNegligible = 1e-4;
constexpr double kSmallest = 0.01;

// A rank, and the parts of its period in which it waited for others, which have these places.
struct Node {
  Rank rank;
  bool is_known = false;
  double waiting = 0;  // the sum of the shares, at most 1
  std::vector<std::pair<std::size_t, double>> shares;
};

// All ranks that the periods mention.
std::vector<Node> nodes_of(const std::vector<RankPeriod>& ranks) {
  std::map<Rank, std::size_t> places;
  std::vector<Node> nodes;
  const auto place_of = [&](Rank rank) {
    const auto [found, is_new] = places.emplace(rank, nodes.size());
    if (is_new) nodes.push_back({rank, false, 0, {}});
    return found->second;
  };
  for (const RankPeriod& period : ranks) {
    const std::size_t place = place_of(period.rank);
    nodes[place].is_known = true;
    if (period.elapsed <= Duration::zero()) continue;
    for (const DirectWait& wait : period.waits) {
      const double share =
          static_cast<double>(wait.waited.count()) / static_cast<double>(period.elapsed.count());
      if (share <= 0) continue;
      const std::size_t peer = place_of(wait.peer);
      nodes[place].shares.emplace_back(peer, share);
      nodes[place].waiting += share;
    }
    // Snapshots of a wait in progress may be some microseconds too long.
    Node& node = nodes[place];
    if (node.waiting <= 1) continue;
    for (auto& [peer, share] : node.shares) share /= node.waiting;
    node.waiting = 1;
  }
  return nodes;
}

// The parts of the period of `waiter` that it lost because of each node.
std::vector<double> losses_of(const std::vector<Node>& nodes, std::size_t waiter) {
  std::vector<double> kept(nodes.size(), 0);
  std::vector<double> arriving(nodes.size(), 0);
  for (const auto& [peer, share] : nodes[waiter].shares) arriving[peer] += share;
  bool goes_on = true;
  for (int hop = 0; goes_on; ++hop) {
    goes_on = false;
    std::vector<double> next(nodes.size(), 0);
    for (std::size_t at = 0; at < nodes.size(); ++at) {
      const double amount = arriving[at];
      if (amount <= 0 || at == waiter) continue;
      const Node& node = nodes[at];
      const bool stays = !node.is_known || hop == kMostHops || amount < kNegligible;
      kept[at] += stays ? amount : amount * (1 - node.waiting);
      if (stays) continue;
      // A share is already a part of the whole period: the shares sum up to `waiting`.
      for (const auto& [peer, share] : node.shares) next[peer] += amount * share;
      goes_on = goes_on || !node.shares.empty();
    }
    arriving = std::move(next);
  }
  return kept;
}

}  // namespace

std::vector<Blame> blame(const std::vector<RankPeriod>& ranks) {
  const std::vector<Node> nodes = nodes_of(ranks);
  std::map<Rank, Duration> elapsed;
  for (const RankPeriod& period : ranks) elapsed[period.rank] = period.elapsed;
  std::vector<Blame> result;
  for (std::size_t waiter = 0; waiter < nodes.size(); ++waiter) {
    if (!nodes[waiter].is_known) continue;
    const std::vector<double> losses = losses_of(nodes, waiter);
    for (std::size_t culprit = 0; culprit < nodes.size(); ++culprit) {
      if (losses[culprit] < kSmallest) continue;
      const double lost =
          losses[culprit] * static_cast<double>(elapsed[nodes[waiter].rank].count());
      result.push_back(
          {nodes[waiter].rank, nodes[culprit].rank, Duration(static_cast<Duration::rep>(lost))});
    }
  }
  return result;
}

}  // namespace dunlin::flight
