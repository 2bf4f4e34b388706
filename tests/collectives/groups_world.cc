#include "tests/collectives/groups_world.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective::testing {
namespace {

// Runs take some hundreds of steps. A run that takes so many doesn't end.
constexpr std::uint64_t kMostSteps = 1'000'000;
constexpr std::uint64_t kCyclesEvery = 4;

}  // namespace

PartialWorld::PartialWorld(const PartialSetting& setting)
    : setting_(setting),
      random_(setting.seed),
      generator_(GroupGenerator::make(setting.options).value()),
      checker_(setting.options.layout.workers()),
      workers_(static_cast<std::size_t>(setting.options.layout.workers())) {
  for (int rank = 0; rank < setting.options.layout.workers(); ++rank) compute(rank);
  for (const auto& death : setting.deaths)
    post(death.at, {.kind = Kind::kDeath, .rank = death.rank});
}

Status PartialWorld::run() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (++steps_ > kMostSteps) return {Code::kInternal, "this goes on for ever"};
    DUNLIN_TRY(step(event));
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].is_alive && !workers_[i].is_over)
      return {Code::kInternal, fmt::format("worker {} hangs in iteration {}, group {}", i,
                                           workers_[i].iteration, workers_[i].seen)};
  }
  return checker_.check_cycles(generator_);
}

void PartialWorld::post(std::uint64_t delay, Event event) {
  event.at = now_ + delay;
  event.order = order_++;
  events_.push(event);
}

void PartialWorld::compute(int rank) {
  Worker& computing = worker(rank);
  computing.is_computing = true;
  const std::uint64_t factor = rank == setting_.slow ? 5 : 1;
  post(factor * (1 + below(setting_.longest_compute)), {.kind = Kind::kComputed, .rank = rank});
}

// One lane in each direction: messages arrive in their order.
void PartialWorld::say(int rank, Said said) {
  Worker& saying = worker(rank);
  saying.last_said_at = std::max(saying.last_said_at, now_ + below(setting_.longest_message + 1));
  post(saying.last_said_at - now_, {.kind = Kind::kSaid, .rank = rank, .said = said});
}

void PartialWorld::ask(int rank) {
  say(rank, {Said::What::kAsk, worker(rank).iteration, worker(rank).done});
}

// Whether a member has died that was not done with the group.
bool PartialWorld::is_doomed(const Group& group) const {
  return std::any_of(group.ranks.begin(), group.ranks.end(), [&](Rank member) {
    const Worker& other = workers_[member.index()];
    return !other.is_alive && other.done < group.sequence;
  });
}

Status PartialWorld::step(const Event& event) {
  Worker& self = worker(event.rank);
  const bool is_in_it = self.is_inside && self.current.group.sequence == event.sequence;
  switch (event.kind) {
    case Kind::kDeath:
      return die(event.rank);
    case Kind::kSaid:
      // It may have been sent before the rank died.
      return hear(event.rank, event.said);
    default:
      break;
  }
  if (!self.is_alive) return Status::ok();
  switch (event.kind) {
    case Kind::kComputed:
      self.is_computing = false;
      ask(event.rank);
      // A repetition, which must do no harm.
      if (setting_.repeats_asks && below(8) == 0) ask(event.rank);
      return look(event.rank);
    case Kind::kFinished:
      return is_in_it && !is_doomed(self.current.group) ? finish(event.rank) : Status::ok();
    case Kind::kDetected:
      if (!is_in_it || self.is_failing) return Status::ok();
      self.is_failing = true;
      say(event.rank, {Said::What::kFail, 0, event.sequence});
      return Status::ok();
    default:
      self.inbox.push_back(std::move(self.on_the_way.front()));
      self.on_the_way.pop_front();
      return look(event.rank);
  }
}

Status PartialWorld::hear(int rank, const Said& said) {
  GroupNotices notices;
  Status status;
  switch (said.what) {
    case Said::What::kAsk:
      status = generator_.ask(Rank(rank), said.iteration, said.sequence, notices);
      break;
    case Said::What::kDone:
      status = generator_.done(Rank(rank), said.sequence, notices);
      break;
    case Said::What::kFail:
      status = generator_.fail(Rank(rank), said.sequence, notices);
      break;
    default:
      status = generator_.lose(Rank(rank), notices, said.sequence);
  }
  // Messages of dead ranks may come late, which is no error of the generator.
  if (status.code() != Code::kPeerDead) DUNLIN_TRY(std::move(status));
  DUNLIN_TRY(checker_.check(generator_));
  if (steps_ % kCyclesEvery == 0) DUNLIN_TRY(checker_.check_cycles(generator_));
  return deliver(notices);
}

Status PartialWorld::deliver(const GroupNotices& notices) {
  for (const GroupNotice& notice : notices) {
    DUNLIN_TRY(checker_.check(notice, generator_));
    if (notice.kind == GroupNotice::Kind::kBroken) ++broken_;
    Worker& to = worker(notice.to.value());
    to.on_the_way.push_back(notice);
    to.last_told_at = std::max(to.last_told_at, now_ + below(setting_.longest_message + 1));
    post(to.last_told_at - now_, {.kind = Kind::kTold, .rank = notice.to.value()});
  }
  return Status::ok();
}

Status PartialWorld::look(int rank) {
  Worker& self = worker(rank);
  const auto ends_current = [&](const GroupNotice& notice) {
    return self.is_inside && notice.kind == GroupNotice::Kind::kBroken &&
           notice.group.sequence == self.seen;
  };
  while (!self.inbox.empty() && !self.is_computing && !self.is_over) {
    // The notice that the present group is broken may come behind notices about later groups.
    if (const auto end = std::find_if(self.inbox.begin(), self.inbox.end(), ends_current);
        end != self.inbox.end()) {
      const bool ask_again = end->ask_again;
      self.inbox.erase(end);
      DUNLIN_TRY(give_up(rank, ask_again));
      continue;
    }
    const GroupNotice notice = self.inbox.front();
    const bool is_news =
        notice.kind == GroupNotice::Kind::kJoin && notice.group.sequence > self.seen;
    if (is_news && self.is_inside) return Status::ok();
    self.inbox.pop_front();
    if (is_news) DUNLIN_TRY(join(rank, notice));
  }
  // No worker is told of a group without asking, except after a repeated ask.
  for (const GroupNotice& notice : self.inbox) {
    if (!setting_.repeats_asks && self.is_computing && notice.kind == GroupNotice::Kind::kJoin &&
        notice.group.sequence > self.seen)
      return {Code::kInternal, fmt::format("worker {} computes, and is told of group {}", rank,
                                           notice.group.sequence)};
  }
  return Status::ok();
}

Status PartialWorld::join(int rank, const GroupNotice& notice) {
  Worker& self = worker(rank);
  DUNLIN_TRY(checker_.enter(Rank(rank), notice.group));
  self.is_inside = true;
  self.seen = notice.group.sequence;
  self.current = notice;
  const Group& group = notice.group;
  if (group.is_alone()) return finish(rank);
  if (is_doomed(group)) {
    post(1 + below(20), {.kind = Kind::kDetected, .rank = rank, .sequence = group.sequence});
    return Status::ok();
  }
  if (++arrived_[group.sequence] < group.ranks.size()) return Status::ok();
  for (const Rank member : group.ranks)
    post(1 + below(6),
         {.kind = Kind::kFinished, .rank = member.value(), .sequence = group.sequence});
  return Status::ok();
}

Status PartialWorld::finish(int rank) {
  Worker& self = worker(rank);
  DUNLIN_TRY(checker_.exit(Rank(rank), true));
  self.is_inside = false;
  self.is_failing = false;
  self.done = self.seen;
  if (self.current.group.leader() == Rank(rank) && !self.current.group.is_alone()) {
    reduced_.push_back(self.current.group);
    say(rank, {Said::What::kDone, 0, self.done});
  }
  if (!self.current.then_compute) return look(rank);
  if (++self.iteration < setting_.iterations) {
    compute(rank);
  } else {
    self.is_over = true;
    say(rank, {Said::What::kLost, 0, self.done});
  }
  return look(rank);
}

Status PartialWorld::give_up(int rank, bool ask_again) {
  Worker& self = worker(rank);
  DUNLIN_TRY(checker_.exit(Rank(rank), false));
  self.is_inside = false;
  self.is_failing = false;
  if (ask_again) ask(rank);
  return Status::ok();
}

Status PartialWorld::die(int rank) {
  Worker& dead = worker(rank);
  if (!dead.is_alive || dead.is_over) return Status::ok();
  dead.is_alive = false;
  say(rank, {Said::What::kLost, 0, 0});
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& other = workers_[i];
    if (!other.is_alive || !other.is_inside || !is_doomed(other.current.group)) continue;
    post(1 + below(20),
         {.kind = Kind::kDetected, .rank = static_cast<int>(i), .sequence = other.seen});
  }
  return Status::ok();
}

}  // namespace dunlin::collective::testing
