#include "tests/support/group_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {
namespace {

template <typename... Arguments>
Status violated(fmt::format_string<Arguments...> what, Arguments&&... arguments) {
  return {Code::kInternal, fmt::format(what, std::forward<Arguments>(arguments)...)};
}

bool has(const std::deque<std::uint64_t>& queue, std::uint64_t sequence) {
  return std::find(queue.begin(), queue.end(), sequence) != queue.end();
}

// Whether it is at the front of the queues of all members that are not done with it.
bool is_in_front(const GroupGenerator& generator, const Group& group) {
  return std::all_of(group.ranks.begin(), group.ranks.end(), [&](Rank member) {
    const auto& queue = generator.queue_of(member);
    return (!queue.empty() && queue.front() == group.sequence) || !has(queue, group.sequence);
  });
}

}  // namespace

GroupChecker::GroupChecker(int workers) : workers_(static_cast<std::size_t>(workers)) {}

Status GroupChecker::check(const GroupGenerator& generator) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Rank rank(static_cast<int>(i));
    if (!generator.is_alive(rank)) {
      if (generator.queue_of(rank).empty()) continue;
      return violated("dead worker {} has groups", i);
    }
    DUNLIN_TRY(check_queue(generator, rank));
    DUNLIN_TRY(check_waiting(generator, rank));
  }
  return Status::ok();
}

Status GroupChecker::check_queue(const GroupGenerator& generator, Rank rank) const {
  const auto& queue = generator.queue_of(rank);
  std::uint64_t last = 0;
  for (const std::uint64_t sequence : queue) {
    if (sequence <= last)
      return violated("worker {} has group {} behind {}", rank.value(), sequence, last);
    last = sequence;
    const Group* const group = generator.find(sequence);
    if (group == nullptr || group->is_alone() || !group->has(rank))
      return violated("worker {} has group {}, which is over, of one, or not its own", rank.value(),
                      sequence);
    for (const Rank member : group->ranks) {
      if (!generator.is_alive(member) && workers_[member.index()].done < sequence)
        return violated("group {} waits for dead worker {}", sequence, member.value());
    }
  }
  return Status::ok();
}

Status GroupChecker::check_waiting(const GroupGenerator& generator, Rank rank) const {
  const auto& queue = generator.queue_of(rank);
  if (queue.empty()) {
    if (!generator.is_waiting(rank)) return Status::ok();
    return violated("worker {} waits and has no group", rank.value());
  }
  const bool is_random = generator.options().policy == GroupPolicy::kRandom;
  const Group& front = *generator.find(queue.front());
  if (generator.has_told(rank)) {
    if (!is_random || is_in_front(generator, front)) return Status::ok();
    return violated("worker {} was notified of group {}, which other groups lock", rank.value(),
                    front.sequence);
  }
  if (!generator.is_waiting(rank) || (is_random && !is_in_front(generator, front)))
    return Status::ok();
  return violated("worker {} waits, although no group precedes its group {}", rank.value(),
                  front.sequence);
}

Status GroupChecker::check_cycles(const GroupGenerator& generator) {
  passed_.assign(workers_.size(), 0);
  const auto front_of = [&](Rank rank) {
    const auto& queue = generator.queue_of(rank);
    const std::size_t passed = passed_[rank.index()];
    return passed < queue.size() ? queue[passed] : 0;
  };
  const auto is_met = [&](Rank member, std::uint64_t sequence) {
    return front_of(member) == sequence || !has(generator.queue_of(member), sequence);
  };
  std::size_t left = 0;
  for (std::size_t i = 0; i < workers_.size(); ++i)
    left += generator.queue_of(Rank(static_cast<int>(i))).size();
  for (bool moved = true; left > 0;) {
    if (!moved) return violated("groups wait for one another in a cycle");
    moved = false;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const std::uint64_t sequence = front_of(Rank(static_cast<int>(i)));
      const Group* const group = generator.find(sequence);
      if (group == nullptr || !std::all_of(group->ranks.begin(), group->ranks.end(),
                                           [&](Rank member) { return is_met(member, sequence); }))
        continue;
      for (const Rank member : group->ranks) {
        if (front_of(member) != sequence) continue;
        ++passed_[member.index()];
        --left;
      }
      moved = true;
    }
  }
  return Status::ok();
}

Status GroupChecker::check(const GroupNotice& notice, const GroupGenerator& generator) const {
  if (!generator.is_alive(notice.to))
    return violated("a notice to dead worker {}", notice.to.value());
  if (notice.kind != GroupNotice::Kind::kJoin) return Status::ok();
  const Group& group = notice.group;
  if (group.sequence == 0 || !group.has(notice.to))
    return violated("worker {} is to join group {}, which does not contain it", notice.to.value(),
                    group.sequence);
  for (const Rank member : group.ranks) {
    if (!generator.is_alive(member) && workers_[member.index()].done < group.sequence)
      return violated("worker {} shall join group {} with dead worker {}", notice.to.value(),
                      group.sequence, member.value());
  }
  return Status::ok();
}

Status GroupChecker::enter(Rank rank, const Group& group) {
  Worker& worker = workers_[rank.index()];
  if (worker.is_inside)
    return violated("worker {} is in groups {} and {}", rank.value(), worker.entered,
                    group.sequence);
  if (group.sequence <= worker.entered)
    return violated("worker {} enters group {} after {}", rank.value(), group.sequence,
                    worker.entered);
  worker.entered = group.sequence;
  worker.is_inside = true;
  Running& running = groups_[group.sequence];
  if (running.group.sequence == 0) running.group = group;
  if (running.group != group || !group.has(rank))
    return violated("worker {} sees different members in group {}", rank.value(), group.sequence);
  ++running.inside;
  return Status::ok();
}

Status GroupChecker::exit(Rank rank, bool is_done) {
  Worker& worker = workers_[rank.index()];
  if (!worker.is_inside) return violated("worker {} exits without a group", rank.value());
  worker.is_inside = false;
  if (is_done) worker.done = worker.entered;
  const auto found = groups_.find(worker.entered);
  Running& running = found->second;
  if (is_done && running.inside < running.group.ranks.size())
    return violated("worker {} is done with group {} before all members entered", rank.value(),
                    worker.entered);
  if (++running.left == running.group.ranks.size()) groups_.erase(found);
  return Status::ok();
}

}  // namespace dunlin::collective
