// The part of Worker that changes the members of its group: deaths, newcomers, ranks that leave.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "apps/svm/program/worker.h"
#include "collectives/waiting/member_watch.h"
#include "runtime/log.h"
#include "runtime/print.h"

namespace dunlin::svm {
namespace {

// Notices of deaths take milliseconds on one host, and a heartbeat between hosts.
constexpr Duration kNewsTime = std::chrono::seconds(2);

// What Bootstrap::changes_before() takes for the end.
constexpr std::uint64_t kNoMoreSteps = ~std::uint64_t{0};

}  // namespace

Status Worker::name_death(Status failure) {
  const Code code = failure.code();
  const bool may_follow_death = code == Code::kUnavailable || code == Code::kNotFound ||
                                code == Code::kIoError || code == Code::kClosed;
  if (!may_follow_death || options_.on_peer_loss != OnPeerLoss::kContinue) return failure;
  collective::MemberWatch watch(fabric_, membership_.members);
  Status news = watch.wait([] { return Status::busy(); },
                           [] { return std::vector<transport::Awaited>(); }, kNewsTime);
  return news.code() == Code::kPeerDead ? news : failure;
}

bool Worker::survives(const Status& status) const {
  return status.code() == Code::kPeerDead && options_.on_peer_loss == OnPeerLoss::kContinue;
}

Status Worker::survive(const Status& loss) {
  DUNLIN_WARN("{}", loss.to_string());
  const std::vector<Rank> before = membership_.members;
  DUNLIN_ASSIGN(membership_, fabric_.bootstrap().reform(change_timeout()));
  return regroup(before);
}

bool Worker::is_elastic() const {
  const JobInfo& job = fabric_.bootstrap().job();
  return job.founders < job.size;
}

bool Worker::is_newcomer() const {
  return fabric_.rank().value() >= fabric_.bootstrap().job().founders;
}

// Checks what would harm the members before it becomes one.
Status Worker::arrive() {
  begin();
  DUNLIN_ASSIGN(const Bytes theirs, fabric_.bootstrap().lookup("svm/terms", change_timeout()));
  const std::string expected(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  if (expected != terms()) {
    return {Code::kInvalidArgument,
            fmt::format("the running job trains with other options or data than this process: it "
                        "has {}; here, these are {}",
                        expected, terms())};
  }
  DUNLIN_ASSIGN(membership_, fabric_.bootstrap().reform(change_timeout()));
  return regroup({});
}

std::string Worker::terms() const {
  const LearnerOptions& learner = options_.learner;
  return fmt::format(
      "{} features, {} rows, loss {}, lambda {}, eta0 {}, seed {}, graph {}, weights {}, sync {}, "
      "depth {}, sync-every {}, {} epochs{}",
      data().features, data().total_rows, to_string(learner.loss), learner.lambda, learner.eta0,
      learner.seed, options_.graph, to_string(options_.weighting), to_string(options_.sync),
      options_.depth, options_.sync_every, options_.epochs,
      options_.has_average ? ", average" : "");
}

// A newcomer reads what it will have if it is the next one that becomes a member.
Shard Worker::first_shard() const {
  const auto rank = static_cast<std::uint32_t>(fabric_.rank().value());
  if (!is_newcomer()) return {rank, founders()};
  Shard shard{0, 1};
  for (int other = 0; other < fabric_.size(); ++other) {
    if (Rank(other) == fabric_.rank() || !fabric_.peers().is_present(Rank(other))) continue;
    ++shard.ranks;
    if (Rank(other) < fabric_.rank()) ++shard.rank;
  }
  return shard;
}

Status Worker::take_turn(std::uint64_t eval_every, std::uint64_t save_every) {
  if (is_elastic()) {
    Bootstrap& bootstrap = fabric_.bootstrap();
    if (retire_->is_asked() && !std::exchange(is_retiring_, true)) DUNLIN_TRY(bootstrap.retire());
    DUNLIN_ASSIGN(bool changes, bootstrap.changes_before(exchange_ + 1, fabric_.config().deadline));
    // In ASYNC the members have no step in common.
    if (options_.sync == collective::SyncMode::kAsync) changes = bootstrap.is_change_wanted();
    if (changes) return change_members();
  }
  DUNLIN_TRY(train_step());
  return follow_up(eval_every, save_every);
}

// Members that have begun to change do so together, also if some are at their end.
Status Worker::end(std::optional<Totals>& all) {
  if (is_elastic()) {
    DUNLIN_ASSIGN(const bool changes,
                  fabric_.bootstrap().changes_before(kNoMoreSteps, fabric_.config().deadline));
    if (changes) return change_members();
  }
  return finish(all);
}

// After the barrier, nobody expects anything of the last epoch any more.
Status Worker::change_members() {
  Bootstrap& bootstrap = fabric_.bootstrap();
  const std::vector<Rank> before = membership_.members;
  DUNLIN_TRY(bootstrap.barrier(fmt::format("svm/change/{}", membership_.epoch), change_timeout()));
  if (is_retiring_) {
    has_left_ = true;
    if (reporter_) DUNLIN_TRY(reporter_->flush());
    print_error(fmt::format("dunlin-svm: rank {} leaves the job after {} exchanges\n",
                            fabric_.rank().value(), exchange_));
    bootstrap.leave();
    return Status::ok();
  }
  DUNLIN_ASSIGN(membership_, bootstrap.reform(change_timeout()));
  return regroup(before);
}

// A rank trains only when all have been prepared. So if one of the members trains, all of them can
// but those that have just joined; otherwise all of them start again.
Status Worker::regroup(const std::vector<Rank>& before) {
  DUNLIN_ASSIGN(const auto standings,
                share_standings(fabric_, membership_, standing(), change_timeout()));
  share_data();
  const auto trains = [](const Standing& each) { return each.stage == Stage::kTraining; };
  if (std::ranges::none_of(standings, trains)) return start_again(before);
  std::vector<Rank> newcomers;
  for (std::size_t i = 0; i < standings.size(); ++i) {
    if (standings[i].stage == Stage::kPreparing) newcomers.push_back(membership_.members[i]);
  }
  take_over(standings);
  LearnerState state{.t = schedule_};
  if (stage_ == Stage::kPreparing) {
    drop_group(before);
    DUNLIN_ASSIGN(group_, Group::create(fabric_, options_, membership_, data().features + 1));
    group_->allow(absence_);
  } else {
    state = learner_->state();
    DUNLIN_TRY(group_->rebuild(membership_));
  }
  DUNLIN_TRY(change_reporter());
  DUNLIN_TRY(group_->hand_over(newcomers, change_timeout()));
  stage_ = Stage::kTraining;
  DUNLIN_TRY(make_learner(&state));
  return report_change(newcomers, before);
}

// Members that are waited for have this long: they may still read their data.
Duration Worker::change_timeout() const {
  return std::max(fabric_.config().deadline, fabric_.config().bootstrap_timeout);
}

// The first member reports.
Status Worker::change_reporter() {
  if (group_->is_leader()) return reporter_ ? Status::ok() : make_reporter(true);
  if (reporter_) DUNLIN_TRY(reporter_->flush());
  reporter_.reset();
  return Status::ok();
}

Standing Worker::standing() const {
  // Or one that this rank has learned from others, when it joined.
  const std::uint64_t told_stop = stop_ ? stop_->last_exchange() : 0;
  return {
      .stage = stage_,
      .exchange = exchange_,
      .stop = told_stop != 0 || last_exchange_ == planned_exchanges() ? told_stop : last_exchange_,
      .run = run_,
      .schedule = learner_ ? learner_->state().t : 0,
      .examples = examples_,
      .eta0 = learning_.eta0,
      .absence = group_ ? group_->absence() : Duration::zero(),
      .trained =
          began_ == TimePoint() ? Duration::zero() : fabric_.clock().now() - began_ - paused_};
}

// The members may be some exchanges apart, and not all of them may have seen the stop signal. They
// continue from the number that the furthest one has reached, and stop where any of them was told
// to. In ASYNC each continues from its own number, since the furthest one may be at the end.
void Worker::take_over(const std::vector<Standing>& standings) {
  Standing all;
  for (const Standing& each : standings) {
    all.exchange = std::max(all.exchange, each.exchange);
    all.stop = std::max(all.stop, each.stop);
    all.schedule = std::max(all.schedule, each.schedule);
    all.absence = std::max(all.absence, each.absence);
    all.trained = std::max(all.trained, each.trained);
    all.examples = std::max(all.examples, each.examples);
    if (each.stage != Stage::kTraining) continue;
    all.run = each.run;
    all.eta0 = each.eta0;
  }
  const bool is_async = options_.sync == collective::SyncMode::kAsync;
  const bool is_new = stage_ == Stage::kPreparing;
  if (!is_async || is_new) exchange_ = all.exchange;
  examples_ = all.examples;
  if (is_new) {
    last_exchange_ = planned_exchanges();
    run_ = all.run;
    learning_.eta0 = all.eta0;
    schedule_ = all.schedule;
    absence_ = all.absence;
    began_ = fabric_.clock().now() - all.trained;
  }
  if (all.stop != 0) last_exchange_ = is_async ? exchange_ : all.stop;
}

// Also in jobs that nothing joins: the rows of a rank that has died go to the others.
void Worker::share_data() {
  const std::vector<Rank>& members = membership_.members;
  const auto place = std::ranges::lower_bound(members, fabric_.rank()) - members.begin();
  shards_->want({static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(members.size())});
}

Status Worker::report_change(const std::vector<Rank>& newcomers, const std::vector<Rank>& before) {
  const std::vector<Rank>& now = membership_.members;
  Change change{.time_s = training_time(),
                .exchange = exchange_,
                .epoch = membership_.epoch,
                .workers = now.size(),
                .joined = newcomers};
  std::vector<Rank> gone;
  std::ranges::set_difference(before, now, std::back_inserter(gone));
  for (const Rank rank : gone) {
    const bool is_dead = fabric_.peers().state(rank) == PeerState::kDead;
    (is_dead ? change.died : change.left).push_back(rank);
  }
  if (!change.died.empty()) {
    DUNLIN_WARN("epoch {}: continuing with {} of {} workers", membership_.epoch, now.size(),
                before.size());
  }
  if (std::ranges::binary_search(change.joined, fabric_.rank())) {
    print_error(fmt::format("dunlin-svm: rank {} has joined the job after {} exchanges\n",
                            fabric_.rank().value(), exchange_));
  }
  return reporter_ ? reporter_->change(change) : Status::ok();
}

Status Worker::start_again(const std::vector<Rank>& before) {
  DUNLIN_WARN("epoch {}: continuing with {} of {} workers, from the start", membership_.epoch,
              membership_.members.size(), before.size());
  reporter_.reset();
  drop_group(before);
  return start();
}

void Worker::drop_group(const std::vector<Rank>& before) {
  learner_.reset();
  group_.reset();
  for (const Rank rank : before) {
    if (!std::ranges::binary_search(membership_.members, rank)) fabric_.drop_link(rank);
  }
}

}  // namespace dunlin::svm
