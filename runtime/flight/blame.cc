#include "runtime/flight/blame.h"

#include <algorithm>
#include <map>

namespace dunlin::flight {
namespace {

// What is still passed on after so many ranks is charged where it is: in a circle of ranks that
// wait for each other almost all the time, it would go around for long.
constexpr int kMostHops = 64;
// Parts of the period that are not followed any more.
constexpr double kNegligible = 1e-4;
constexpr double kSmallest = 0.01;

// The parts of a rank's period in which it waited for others.
struct Shares {
  double waiting = 0;  // their sum, at most 1
  std::vector<std::pair<Rank, double>> by_peer;
};

Shares shares_of(const RankPeriod& period) {
  Shares shares;
  if (period.elapsed <= Duration::zero()) return shares;
  for (const DirectWait& wait : period.waits) {
    const double share =
        static_cast<double>(wait.waited.count()) / static_cast<double>(period.elapsed.count());
    if (share <= 0) continue;
    shares.by_peer.emplace_back(wait.peer, share);
    shares.waiting += share;
  }
  // Snapshots of a wait in progress may be some microseconds too long.
  if (shares.waiting > 1) {
    for (auto& [peer, share] : shares.by_peer) share /= shares.waiting;
    shares.waiting = 1;
  }
  return shares;
}

}  // namespace

std::vector<Blame> blame(const std::vector<RankPeriod>& ranks) {
  std::map<Rank, Shares> known;
  for (const RankPeriod& period : ranks) known[period.rank] = shares_of(period);
  std::vector<Blame> result;
  for (const RankPeriod& period : ranks) {
    std::map<Rank, double> arriving;
    for (const auto& [peer, share] : known[period.rank].by_peer) arriving[peer] += share;
    std::map<Rank, double> kept;
    for (int hop = 0; !arriving.empty() && hop <= kMostHops; ++hop) {
      std::map<Rank, double> next;
      for (const auto& [rank, amount] : arriving) {
        if (rank == period.rank) continue;
        const auto found = known.find(rank);
        const bool stays = found == known.end() || hop == kMostHops || amount < kNegligible;
        kept[rank] += stays ? amount : amount * (1 - found->second.waiting);
        if (stays) continue;
        // `share` is already a part of the whole period: the shares sum up to `waiting`.
        for (const auto& [peer, share] : found->second.by_peer) next[peer] += amount * share;
      }
      arriving = std::move(next);
    }
    for (const auto& [culprit, share] : kept) {
      if (share < kSmallest) continue;
      const double lost = share * static_cast<double>(period.elapsed.count());
      result.push_back({period.rank, culprit, Duration(static_cast<Duration::rep>(lost))});
    }
  }
  return result;
}

}  // namespace dunlin::flight
