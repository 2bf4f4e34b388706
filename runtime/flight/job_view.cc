#include "runtime/flight/job_view.h"

#include <algorithm>
#include <map>

#include "runtime/flight/folder.h"

namespace dunlin::flight {
namespace {

// A rank lost by others less than this, in sum, holds up nobody.
constexpr double kLeastLoss = 0.1;
// Ranks that exchange data wait for each other all the time. A straggler causes so many times the
// loss that another rank causes on average.
constexpr double kOutlier = 2;
// Ranks that lose less are not counted among those that wait.
constexpr double kLeastWaiterLoss = 0.05;
constexpr int kUsualSteps = 5;

const Snapshot* find(const std::vector<Snapshot>& snapshots, Rank rank) {
  const auto found = std::find_if(snapshots.begin(), snapshots.end(),
                                  [rank](const Snapshot& each) { return each.rank == rank; });
  return found == snapshots.end() ? nullptr : &*found;
}

std::uint64_t grown(std::uint64_t before, std::uint64_t now) {
  return now - std::min(before, now);
}

RankView view_of_rank(const Snapshot* before, const Snapshot& now) {
  // Another process may have taken the rank meanwhile.
  static const Snapshot nothing;
  const bool is_same = before != nullptr && before->pid == now.pid && before->began == now.began;
  const Snapshot& base = is_same ? *before : nothing;
  RankView view;
  view.now = now;
  view.period = now.at - (is_same ? base.at : now.began);
  for (const PeerTime& each : now.peers) {
    const auto known = std::find_if(base.peers.begin(), base.peers.end(),
                                    [&](const PeerTime& old) { return old.peer == each.peer; });
    const Duration waited = each.waited - (known == base.peers.end() ? Duration() : known->waited);
    if (waited > Duration::zero()) view.waits.push_back({each.peer, waited});
  }
  std::stable_sort(view.waits.begin(), view.waits.end(),
                   [](const DirectWait& a, const DirectWait& b) { return a.waited > b.waited; });
  if (view.period > Duration::zero()) {
    const Duration waited = std::clamp(now.waited - base.waited, Duration::zero(), view.period);
    view.wait_share =
        static_cast<double>(waited.count()) / static_cast<double>(view.period.count());
  }
  view.operations = grown(base.operations, now.operations);
  view.steps = grown(base.steps, now.steps);
  for (const TransportUse& each : now.transports) {
    const auto known = std::find_if(base.transports.begin(), base.transports.end(),
                                    [&](const TransportUse& old) { return old.name == each.name; });
    const bool is_known = known != base.transports.end();
    view.bytes.push_back({each.name, grown(is_known ? known->put : 0, each.put),
                          grown(is_known ? known->got : 0, each.got)});
  }
  view.is_active = view.operations > 0 || view.steps > 0 || now.step != base.step ||
                   now.events != base.events || now.awaited != Rank();
  if (view.steps > 0) {
    const Duration own = std::max(now.own_time - base.own_time, Duration::zero());
    view.own_step = own / static_cast<Duration::rep>(view.steps);
  } else if (now.steps > 0) {
    view.own_step = now.own_time / static_cast<Duration::rep>(now.steps);
  }
  return view;
}

bool is_stuck(const RankView& view, const ViewOptions& options) {
  if (view.now.is_over() || view.now.awaited != Rank()) return false;
  Duration usual{};
  if (view.now.steps > 0) usual = view.now.step_time / static_cast<Duration::rep>(view.now.steps);
  const Duration limit = std::max(options.stuck_after, kUsualSteps * usual);
  const bool was_seen_long_ago = view.now.at - view.now.seen >= limit;
  // Operations that need not wait advance the counters, and don't read the clock.
  return was_seen_long_ago && (!view.is_active || view.period >= view.now.elapsed());
}

std::optional<Duration> median_step(const JobView& job, Rank without) {
  std::vector<Duration> times;
  for (const RankView& view : job.ranks) {
    if (view.now.rank != without && view.own_step) times.push_back(*view.own_step);
  }
  if (times.empty()) return std::nullopt;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

std::optional<Trouble> sure_trouble(const RankView& view) {
  if (view.now.process == ProcessState::kEnded && view.now.phase == Phase::kRunning)
    return Trouble::kDead;
  if (view.now.process == ProcessState::kStopped) return Trouble::kStopped;
  return std::nullopt;
}

void find_stragglers(JobView& job, const ViewOptions& options) {
  std::vector<RankPeriod> periods;
  std::map<Rank, Duration> period_of;
  for (const RankView& view : job.ranks) {
    periods.push_back({view.now.rank, view.period, view.waits});
    period_of[view.now.rank] = view.period;
  }
  std::map<Rank, std::vector<std::pair<double, Rank>>> losses;  // by culprit
  std::map<Rank, double> sums;
  double all = 0;
  for (const Blame& each : blame(periods)) {
    const double share = static_cast<double>(each.lost.count()) /
                         static_cast<double>(period_of[each.waiter].count());
    losses[each.culprit].emplace_back(share, each.waiter);
    sums[each.culprit] += share;
    all += share;
  }
  const auto add = [&](Rank rank, std::optional<Trouble> sure) {
    Straggler straggler;
    straggler.rank = rank;
    auto& waiters = losses[rank];
    std::sort(waiters.begin(), waiters.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    for (const auto& [share, waiter] : waiters) {
      if (share < kLeastWaiterLoss) continue;
      straggler.waiters.push_back(waiter);
      straggler.lost_share += share;
    }
    if (!straggler.waiters.empty())
      straggler.lost_share /= static_cast<double>(straggler.waiters.size());
    if (const RankView* const view = job.find(rank)) {
      straggler.trouble =
          sure.value_or(is_stuck(*view, options) ? Trouble::kStuck : Trouble::kSlow);
      straggler.own_step = view->own_step;
      straggler.idle = view->now.at - view->now.seen;
    }
    straggler.median_step = median_step(job, rank);
    job.stragglers.push_back(std::move(straggler));
  };
  for (const RankView& view : job.ranks) {
    if (const auto trouble = sure_trouble(view)) add(view.now.rank, trouble);
  }
  const auto others = static_cast<double>(std::max<std::size_t>(job.ranks.size(), 2) - 1);
  for (const auto& [rank, sum] : sums) {
    const RankView* const view = job.find(rank);
    if (view != nullptr && sure_trouble(*view)) continue;
    // Many ranks may each lose too little for one to be named.
    const bool is_felt =
        std::any_of(losses[rank].begin(), losses[rank].end(),
                    [](const auto& loss) { return loss.first >= kLeastWaiterLoss; });
    if (is_felt && sum >= kLeastLoss && sum >= kOutlier * (all - sum) / others)
      add(rank, std::nullopt);
  }
  std::stable_sort(job.stragglers.begin(), job.stragglers.end(),
                   [&](const Straggler& a, const Straggler& b) {
                     if (a.trouble != b.trouble) return a.trouble > b.trouble;
                     return sums[a.rank] > sums[b.rank];
                   });
}

}  // namespace

const char* to_string(Trouble trouble) {
  switch (trouble) {
    case Trouble::kSlow:
      return "slow";
    case Trouble::kStuck:
      return "stuck";
    case Trouble::kStopped:
      return "stopped";
    case Trouble::kDead:
      return "dead";
  }
  return "unknown";
}

const RankView* JobView::find(Rank rank) const {
  const auto found = std::find_if(ranks.begin(), ranks.end(),
                                  [rank](const RankView& each) { return each.now.rank == rank; });
  return found == ranks.end() ? nullptr : &*found;
}

JobView view_of(const std::vector<Snapshot>& before, const std::vector<Snapshot>& now,
                const ViewOptions& options) {
  JobView job;
  for (const Snapshot& each : now) job.ranks.push_back(view_of_rank(find(before, each.rank), each));
  if (!now.empty()) {
    job.job = now.front().job;
    job.host = now.front().host;
    job.program = now.front().program;
    job.size = now.front().size;
  }
  find_stragglers(job, options);
  return job;
}

std::vector<Snapshot> read_folder(const std::string& folder, std::vector<std::string>* problems) {
  const SteadyClock clock;
  std::vector<Snapshot> snapshots;
  for (const std::string& path : list_records(folder)) {
    const auto record = Record::open(path);
    if (record) snapshots.push_back(record->snapshot(clock.now()));
    if (!record && problems != nullptr) problems->emplace_back(record.status().message());
  }
  return snapshots;
}

}  // namespace dunlin::flight
