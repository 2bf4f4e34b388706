#include "collectives/groups/static_schedule.h"

namespace dunlin::collective {
namespace {

// The worker that is paired with `local` if last, last - 1, ..., first are paired from the last one
// down; `local` itself if it is left over.
int pair_down(int local, int first, int last) {
  const int other = (last - local) % 2 == 0 ? local - 1 : local + 1;
  return other < first ? local : other;
}

// The opposite host, or -1.
int opposite_of(int host, int hosts) {
  const int half = hosts / 2;
  if (host < half) return host + half;
  return host < 2 * half ? host - half : -1;
}

}  // namespace

Result<StaticSchedule> StaticSchedule::make(WorkerLayout layout) {
  DUNLIN_TRY(check(layout));
  return StaticSchedule(layout);
}

Group StaticSchedule::group_of(std::uint64_t iteration, Rank rank) const {
  Group group;
  group.ranks = members_of(iteration % kPeriod, rank);
  group.sequence = iteration * static_cast<std::uint64_t>(layout_.workers()) +
                   static_cast<std::uint64_t>(group.leader().index()) + 1;
  return group;
}

std::vector<Group> StaticSchedule::groups_of(std::uint64_t iteration) const {
  std::vector<Group> groups;
  for (int i = 0; i < layout_.workers(); ++i) {
    Group group = group_of(iteration, Rank(i));
    if (group.leader() == Rank(i) && !group.is_alone()) groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<Rank> StaticSchedule::members_of(std::uint64_t phase, Rank rank) const {
  const int host = layout_.host_of(rank);
  const int local = layout_.local_of(rank);
  const int last = layout_.workers_per_host - 1;
  const auto alone_or = [&](Rank other) {
    if (other == rank) return std::vector<Rank>{rank};
    return std::vector<Rank>{std::min(rank, other), std::max(rank, other)};
  };
  std::vector<Rank> members;
  switch (phase) {
    case 0:
      if (local > 0) return alone_or(layout_.rank_of(host, pair_down(local, 1, last)));
      for (int i = 0; i < layout_.hosts; ++i) members.push_back(layout_.rank_of(i, 0));
      return members;
    case 2: {
      if (local == std::min(1, last)) {
        const int opposite = opposite_of(host, layout_.hosts);
        return alone_or(opposite < 0 ? rank : layout_.rank_of(opposite, local));
      }
      // With two workers per host, the second worker is also the last one, and averages with that
      // of another host.
      if (local == 0 || local == last)
        return alone_or(last > 1 ? layout_.rank_of(host, last - local) : rank);
      return alone_or(layout_.rank_of(host, pair_down(local, 2, last - 1)));
    }
    default:
      for (int i = 0; i <= last; ++i) members.push_back(layout_.rank_of(host, i));
      return members;
  }
}

}  // namespace dunlin::collective
