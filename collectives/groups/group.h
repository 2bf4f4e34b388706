// Group: the workers of one partial all-reduce (Ripples / Prague, sections 3.2 and 4).
//
// A worker is a rank of the job, 0..workers-1. Rank r runs on host r / workers_per_host. After the
// reduce every member holds the plain average of the members' models. Models of other workers don't
// change.
//
// A value; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::collective {

struct Group {
  // Of two groups that share a worker, the one with the smaller number comes first. Numbers are
  // unique in a job. 0: no group.
  std::uint64_t sequence = 0;
  // Ascending, each once. A single worker goes on without synchronizing.
  std::vector<Rank> ranks;

  // The member that tells the generator that the reduce is done.
  Rank leader() const { return ranks.front(); }
  bool has(Rank rank) const { return std::binary_search(ranks.begin(), ranks.end(), rank); }
  bool is_alone() const { return ranks.size() < 2; }
  bool operator==(const Group&) const = default;
};

// The hosts on which the workers run.
struct WorkerLayout {
  int hosts = 1;
  int workers_per_host = 1;

  int workers() const { return hosts * workers_per_host; }
  int host_of(Rank rank) const { return rank.value() / workers_per_host; }
  int local_of(Rank rank) const { return rank.value() % workers_per_host; }
  Rank rank_of(int host, int local) const { return Rank(host * workers_per_host + local); }
  bool operator==(const WorkerLayout&) const = default;
};
// A bound beyond any job, so that numbers of workers never overflow.
inline constexpr int kMostWorkers = 1 << 20;
// kInvalidArgument: numbers below one, or too many workers.
Status check(const WorkerLayout& layout);

}  // namespace dunlin::collective
