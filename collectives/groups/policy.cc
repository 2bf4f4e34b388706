#include "collectives/groups/policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {
namespace {

using Ranks = std::vector<Rank>;

class SmartPolicy {
 public:
  SmartPolicy(const GroupOptions& options, std::span<const WorkerView> workers, Rank initiator,
              GroupRandom& random)
      : options_(options), workers_(workers), initiator_(initiator), random_(random) {}

  std::vector<Ranks> choose() {
    Ranks candidates;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const Rank rank(static_cast<int>(i));
      if (rank == initiator_ || (workers_[i].queued == 0 && may_join(rank)))
        candidates.push_back(rank);
    }
    if (candidates.size() == 1) {
      join_the_busy();
    } else if (const auto hosts = by_host(candidates); options_.inter_intra && hosts.size() > 1) {
      meet_between(hosts);
      meet_inside(hosts);
    } else {
      divide(candidates);
    }
    return std::move(groups_);
  }

 private:
  std::uint64_t iteration(Rank rank) const { return workers_[rank.index()].iteration; }
  bool is_far_behind(Rank rank, std::uint64_t reference) const {
    return reference >= options_.slowdown_threshold &&
           iteration(rank) <= reference - options_.slowdown_threshold;
  }
  // Whether the worker is alive and passes the slowdown filter.
  bool may_join(Rank rank) const {
    return workers_[rank.index()].is_alive && !is_far_behind(rank, iteration(initiator_));
  }

  // Splits `ranks`, which are ascending, by host. Hosts without a rank are left out.
  std::vector<Ranks> by_host(const Ranks& ranks) const {
    std::vector<Ranks> hosts;
    for (const Rank rank : ranks) {
      if (hosts.empty() ||
          options_.layout.host_of(hosts.back().front()) != options_.layout.host_of(rank))
        hosts.emplace_back();
      hosts.back().push_back(rank);
    }
    return hosts;
  }

  // `ranks` has at least two elements.
  void divide(Ranks ranks) {
    random_.shuffle(std::span(ranks));
    const std::size_t size = static_cast<std::size_t>(options_.group_size);
    const std::size_t parts = std::min((ranks.size() + size - 1) / size, ranks.size() / 2);
    for (std::size_t part = 0; part < parts; ++part) {
      const auto at = [&](std::size_t i) {
        return ranks.begin() + static_cast<std::ptrdiff_t>(ranks.size() * i / parts);
      };
      add({at(part), at(part + 1)});
    }
  }

  // The Inter phase.
  void meet_between(const std::vector<Ranks>& hosts) {
    Ranks heads;
    for (const Ranks& host : hosts) {
      Ranks others = host;
      random_.shuffle(std::span(others));
      heads.push_back(others.back());
      others.pop_back();
      if (others.size() > 1) {
        divide(std::move(others));
      } else {
        // A single other candidate of the host goes along with the head.
        heads.insert(heads.end(), others.begin(), others.end());
      }
    }
    divide(std::move(heads));
  }

  // The Intra phase.
  void meet_inside(const std::vector<Ranks>& hosts) {
    for (const Ranks& host : hosts) {
      std::uint64_t fastest = 0;
      for (const Rank rank : host) fastest = std::max(fastest, iteration(rank));
      Ranks members;
      std::copy_if(host.begin(), host.end(), std::back_inserter(members), [&](Rank rank) {
        return !options_.intra_filter || !is_far_behind(rank, fastest);
      });
      if (members.size() > 1) add(std::move(members));
    }
  }

  void join_the_busy() {
    if (workers_[initiator_.index()].alone < options_.most_alone) return add({initiator_});
    Ranks busy;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const Rank rank(static_cast<int>(i));
      if (rank != initiator_ && may_join(rank)) busy.push_back(rank);
    }
    random_.shuffle(std::span(busy));
    std::stable_sort(busy.begin(), busy.end(), [&](Rank a, Rank b) {
      return workers_[a.index()].queued < workers_[b.index()].queued;
    });
    busy.resize(std::min(busy.size(), static_cast<std::size_t>(options_.group_size - 1)));
    busy.push_back(initiator_);
    add(std::move(busy));
  }

  void add(Ranks ranks) {
    std::sort(ranks.begin(), ranks.end());
    groups_.push_back(std::move(ranks));
  }

  const GroupOptions& options_;
  std::span<const WorkerView> workers_;
  Rank initiator_;
  GroupRandom& random_;
  std::vector<Ranks> groups_;
};

std::vector<Ranks> choose_randomly(const GroupOptions& options, std::span<const WorkerView> workers,
                                   Rank initiator, GroupRandom& random) {
  Ranks others;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const Rank rank(static_cast<int>(i));
    if (rank != initiator && workers[i].is_alive) others.push_back(rank);
  }
  random.shuffle(std::span(others));
  others.resize(std::min(others.size(), static_cast<std::size_t>(options.group_size - 1)));
  others.push_back(initiator);
  std::sort(others.begin(), others.end());
  return {std::move(others)};
}

}  // namespace

const char* to_string(GroupPolicy policy) {
  switch (policy) {
    case GroupPolicy::kRandom:
      return "random";
    case GroupPolicy::kBuffered:
      return "buffered";
    default:
      return "smart";
  }
}

Status check(const GroupOptions& options) {
  DUNLIN_TRY(check(options.layout));
  const int workers = options.layout.workers();
  if (workers > 1 && (options.group_size < 2 || options.group_size > workers))
    return {Code::kInvalidArgument, fmt::format("group size {}: must be 2 to the number of "
                                                "workers, {}",
                                                options.group_size, workers)};
  if (options.slowdown_threshold < 1)
    return {Code::kInvalidArgument,
            "slowdown threshold 0: no worker would pass the filter; must be at least 1"};
  if (options.policy > GroupPolicy::kSmart) return {Code::kInvalidArgument, "no such group policy"};
  return Status::ok();
}

std::uint64_t GroupRandom::next() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::size_t GroupRandom::below(std::size_t bound) {
  // The bias is at most bound / 2^64.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>((Wide{next()} * bound) >> 64);
}

std::vector<std::vector<Rank>> choose_groups(const GroupOptions& options,
                                             std::span<const WorkerView> workers, Rank initiator,
                                             GroupRandom& random) {
  if (options.policy != GroupPolicy::kSmart)
    return choose_randomly(options, workers, initiator, random);
  return SmartPolicy(options, workers, initiator, random).choose();
}

}  // namespace dunlin::collective
