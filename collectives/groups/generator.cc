#include "collectives/groups/generator.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective {

Result<GroupGenerator> GroupGenerator::make(const GroupOptions& options, std::uint64_t first) {
  DUNLIN_TRY(check(options));
  if (first == 0) return Status(Code::kInvalidArgument, "groups are numbered from 1 on");
  GroupGenerator made(options);
  made.next_sequence_ = first;
  return made;
}

GroupGenerator::GroupGenerator(const GroupOptions& options)
    : options_(options),
      random_(options.seed),
      workers_(static_cast<std::size_t>(options.layout.workers())) {}

Status GroupGenerator::ask(Rank rank, std::uint64_t iteration, std::uint64_t last_done,
                           GroupNotices& notices) {
  DUNLIN_TRY(check_alive(rank));
  Worker& asking = worker(rank);
  if (iteration < asking.iteration)
    return Status(Code::kInvalidArgument, fmt::format("asks for a group of iteration {} after {}",
                                                      iteration, asking.iteration))
        .with_peer(rank);
  DUNLIN_TRY(check_last_done(rank, last_done));

  std::vector<Rank> concerned;
  leave_up_to(rank, last_done, concerned);
  // Groups that it was told of before answered an earlier ask.
  if (iteration > asking.iteration) asking.is_answered = false;
  asking.iteration = iteration;
  if (has_told(rank)) {
    join(rank, notices);
  } else if (asking.is_answered) {
    // The answer may have been to stay alone, and may have been lost.
    notices.push_back({.to = rank, .group = {asking.told, {rank}}, .then_compute = true});
  } else {
    asking.state = State::kWaiting;
    concerned.push_back(rank);
  }
  serve(std::move(concerned), notices);
  return Status::ok();
}

Status GroupGenerator::done(Rank rank, std::uint64_t sequence, GroupNotices& notices) {
  DUNLIN_TRY(check_member(rank, sequence));
  const auto found = groups_.find(sequence);
  if (found == groups_.end()) return Status::ok();
  const std::vector<Rank> members = found->second.group.ranks;
  for (const Rank member : members) {
    const Worker& other = worker(member);
    // A worker without it in its queue was told of later groups, if of any.
    if (other.told < sequence)
      return Status(Code::kInvalidArgument,
                    fmt::format("says that group {} is done, but rank {} was not told of it",
                                sequence, member.value()))
          .with_peer(rank);
  }
  std::vector<Rank> concerned;
  for (const Rank member : members) {
    leave(member, sequence);
    add_front(member, concerned);
  }
  serve(std::move(concerned), notices);
  return Status::ok();
}

Status GroupGenerator::fail(Rank rank, std::uint64_t sequence, GroupNotices& notices) {
  DUNLIN_TRY(check_alive(rank));
  DUNLIN_TRY(check_member(rank, sequence));
  Worker& failing = worker(rank);
  if (failing.told < sequence)
    return Status(Code::kInvalidArgument,
                  fmt::format("says that group {} failed, but was not told of it", sequence))
        .with_peer(rank);
  if (failing.queue.empty() || failing.queue.front() != sequence) {
    // The group was done or broken before. If it was broken, this member gets the notice twice.
    if (failing.told == sequence) failing.is_answered = false;
    notices.push_back({.kind = GroupNotice::Kind::kBroken,
                       .to = rank,
                       .group = {sequence, {}},
                       .ask_again = failing.state == State::kComputing});
  }
  std::vector<Rank> concerned;
  break_group(sequence, notices, concerned);
  serve(std::move(concerned), notices);
  return Status::ok();
}

Status GroupGenerator::lose(Rank rank, GroupNotices& notices, std::uint64_t last_done) {
  DUNLIN_TRY(check_rank(rank));
  if (!worker(rank).is_alive) return Status::ok();
  DUNLIN_TRY(check_last_done(rank, last_done));
  std::vector<Rank> concerned;
  leave_up_to(rank, last_done, concerned);
  worker(rank).is_alive = false;
  for (const std::uint64_t sequence : std::deque(worker(rank).queue)) {
    leave(rank, sequence);
    const auto found = groups_.find(sequence);
    if (found == groups_.end()) continue;
    Record& record = found->second;
    if (record.is_told) {
      break_group(sequence, notices, concerned);
      continue;
    }
    std::erase(record.group.ranks, rank);
    for (const Rank member : record.group.ranks) concerned.push_back(member);
    if (record.group.is_alone()) {
      const Rank last = record.group.leader();
      leave(last, sequence);
      add_front(last, concerned);
    }
  }
  serve(std::move(concerned), notices);
  return Status::ok();
}

bool GroupGenerator::has_told(Rank rank) const {
  const Worker& of = worker(rank);
  return !of.queue.empty() && of.queue.front() <= of.told;
}

const Group* GroupGenerator::find(std::uint64_t sequence) const {
  const auto found = groups_.find(sequence);
  return found == groups_.end() ? nullptr : &found->second.group;
}

Status GroupGenerator::check_rank(Rank rank) const {
  if (rank.value() >= 0 && rank.index() < workers_.size()) return Status::ok();
  return Status(Code::kOutOfRange,
                fmt::format("no worker {} among {}", rank.value(), workers_.size()));
}

Status GroupGenerator::check_alive(Rank rank) const {
  DUNLIN_TRY(check_rank(rank));
  if (worker(rank).is_alive) return Status::ok();
  return Status(Code::kPeerDead, "was reported lost, and gets no more groups").with_peer(rank);
}

Status GroupGenerator::check_member(Rank rank, std::uint64_t sequence) const {
  DUNLIN_TRY(check_rank(rank));
  if (sequence == 0 || sequence >= next_sequence_)
    return Status(Code::kInvalidArgument, fmt::format("there was no group {} yet", sequence))
        .with_peer(rank);
  const Group* const group = find(sequence);
  if (group == nullptr || group->has(rank)) return Status::ok();
  return Status(Code::kInvalidArgument, fmt::format("is no member of group {}", sequence))
      .with_peer(rank);
}

Status GroupGenerator::check_last_done(Rank rank, std::uint64_t last_done) const {
  const std::uint64_t told = worker(rank).told;
  if (last_done <= told) return Status::ok();
  return Status(
             Code::kInvalidArgument,
             fmt::format("says that group {} is done, but was told of {} at most", last_done, told))
      .with_peer(rank);
}

void GroupGenerator::leave_up_to(Rank rank, std::uint64_t last_done, std::vector<Rank>& concerned) {
  const auto& queue = worker(rank).queue;
  while (!queue.empty() && queue.front() <= last_done) {
    leave(rank, queue.front());
    add_front(rank, concerned);
  }
}

void GroupGenerator::leave(Rank rank, std::uint64_t sequence) {
  Worker& leaving = worker(rank);
  const auto at = std::find(leaving.queue.begin(), leaving.queue.end(), sequence);
  if (at == leaving.queue.end()) return;
  if (sequence == leaving.told && leaving.state == State::kServed) {
    leaving.state = State::kComputing;
    leaving.is_answered = true;
  }
  if (sequence == leaving.own) leaving.own = 0;
  leaving.queue.erase(at);
  const auto found = groups_.find(sequence);
  if (--found->second.left == 0) groups_.erase(found);
}

void GroupGenerator::break_group(std::uint64_t sequence, GroupNotices& notices,
                                 std::vector<Rank>& concerned) {
  const auto found = groups_.find(sequence);
  if (found == groups_.end()) return;
  const Group group = found->second.group;
  for (const Rank member : group.ranks) {
    const Worker& of = worker(member);
    if (std::find(of.queue.begin(), of.queue.end(), sequence) == of.queue.end()) continue;
    const bool is_answer = of.told == sequence && of.state == State::kServed;
    if (of.told >= sequence) {
      notices.push_back({.kind = GroupNotice::Kind::kBroken,
                         .to = member,
                         .group = group,
                         .ask_again = is_answer});
    }
    leave(member, sequence);
    if (is_answer) worker(member).is_answered = false;
    add_front(member, concerned);
    concerned.push_back(member);
  }
}

void GroupGenerator::add_front(Rank rank, std::vector<Rank>& concerned) const {
  const auto& queue = worker(rank).queue;
  if (queue.empty()) return;
  const auto& ranks = groups_.at(queue.front()).group.ranks;
  concerned.insert(concerned.end(), ranks.begin(), ranks.end());
}

void GroupGenerator::serve(std::vector<Rank> concerned, GroupNotices& notices) {
  // `concerned` grows in the loop, by the members of the groups that are made.
  for (std::size_t i = 0; i < concerned.size(); ++i) {
    if (needs_group(concerned[i])) make_groups(concerned[i], notices, concerned);
  }
  for (const Rank rank : concerned) tell(rank, notices);
}

bool GroupGenerator::needs_group(Rank rank) const {
  const Worker& of = worker(rank);
  if (!of.is_alive || of.state != State::kWaiting) return false;
  return options_.policy == GroupPolicy::kRandom ? of.own == 0 : of.queue.empty();
}

void GroupGenerator::make_groups(Rank rank, GroupNotices& notices, std::vector<Rank>& concerned) {
  std::vector<WorkerView> views;
  views.reserve(workers_.size());
  for (const Worker& each : workers_)
    views.push_back({each.is_alive, each.queue.size(), each.iteration, each.alone});
  for (auto& ranks : choose_groups(options_, views, rank, random_)) {
    const std::uint64_t sequence = next_sequence_++;
    if (ranks.size() == 1) {
      // The worker has asked since it has no group of its own. With the random policy, a group that
      // it was told of may still be in its queue, if all members that were done with it have died.
      worker(rank).told = sequence;
      worker(rank).state = State::kComputing;
      worker(rank).is_answered = true;
      ++worker(rank).alone;
      notices.push_back({.to = rank, .group = {sequence, std::move(ranks)}, .then_compute = true});
      continue;
    }
    for (const Rank member : ranks) {
      worker(member).queue.push_back(sequence);
      worker(member).alone = 0;
    }
    if (options_.policy == GroupPolicy::kRandom) worker(rank).own = sequence;
    concerned.insert(concerned.end(), ranks.begin(), ranks.end());
    Record record;
    record.left = static_cast<std::uint32_t>(ranks.size());
    record.group = {sequence, std::move(ranks)};
    groups_.emplace_hint(groups_.end(), sequence, std::move(record));
  }
}

void GroupGenerator::tell(Rank rank, GroupNotices& notices) {
  Worker& waiting = worker(rank);
  if (waiting.state != State::kWaiting || waiting.queue.empty() || has_told(rank)) return;
  Record& record = groups_.at(waiting.queue.front());
  if (!is_ready(record)) return;
  record.is_told = true;
  waiting.told = record.group.sequence;
  join(rank, notices);
}

void GroupGenerator::join(Rank rank, GroupNotices& notices) {
  Worker& joining = worker(rank);
  const Group& group = groups_.at(joining.queue.front()).group;
  const bool is_last = options_.policy != GroupPolicy::kRandom || group.sequence == joining.own;
  if (is_last) joining.state = State::kServed;
  notices.push_back({.to = rank, .group = group, .then_compute = is_last});
}

bool GroupGenerator::is_ready(const Record& record) const {
  // With other policies, members wait for one another in the reduce, so every group is ready. A
  // group that was ready once stays ready.
  if (options_.policy != GroupPolicy::kRandom || record.is_told) return true;
  return std::all_of(record.group.ranks.begin(), record.group.ranks.end(), [&](Rank member) {
    return worker(member).queue.front() == record.group.sequence;
  });
}

}  // namespace dunlin::collective
