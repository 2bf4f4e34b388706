// The part of Worker that changes the members of its group: deaths, newcomers, ranks that leave.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/standings.h"
#include "apps/svm/program/worker.h"
#include "runtime/log.h"

namespace dunlin::svm {

Status Worker::survive(Status outcome) {
  return members_.survive(std::move(outcome), [this] { return regroup(); });
}

Status Worker::arrive() {
  begin();
  DUNLIN_TRY(members_.join(terms()));
  return regroup();
}

Terms Worker::terms() const {
  const LearnerOptions& learner = options_.learner;
  Terms terms;
  terms.add("features", data().features)
      .add("rows", data().total_rows)
      .add("training set (the whole one, which each rank reads)", dunlin::to_string(data().whole))
      .add("--loss", to_string(learner.loss))
      .add("--lambda", learner.lambda)
      .add("--eta0", learner.eta0 > 0 ? std::optional(learner.eta0) : std::nullopt)
      .add("--seed", learner.seed)
      .add("--graph", options_.graph)
      .add("--weights", to_string(options_.weighting))
      .add("--sync", to_string(options_.sync))
      .add("--depth", options_.depth)
      .add("--sync-every", options_.sync_every)
      .add("--epochs", options_.epochs)
      .add("--average", options_.has_average)
      .add("--shard-skew", to_string(options_.shard_skew))
      .add("--on-peer-loss", to_string(options_.on_peer_loss));
  return terms;
}

Terms Worker::terms_of_start() const {
  Terms terms = this->terms();
  // Newcomers may be among those that start again, and have joined with other reports.
  if (members_.epoch() > 0) return terms;
  terms.add("--resume", given(options_.resume))
      .add("--checkpoint", given(options_.checkpoint))
      .add("--checkpoint-every", options_.checkpoint_every)
      .add("--deferred-eval", options_.is_deferred);
  // In a job that may grow, any member may have a target.
  if (!members_.is_elastic()) terms.add("--target-objective", options_.target_objective);
  return terms;
}

Status Worker::take_turn(std::uint64_t eval_every, std::uint64_t save_every) {
  const bool wants_to_leave = retire_ && retire_->is_asked();
  DUNLIN_ASSIGN(const bool changes, members_.change_before(exchange_ + 1, wants_to_leave));
  if (changes) return change_members();
  DUNLIN_TRY(train_step());
  return follow_up(eval_every, save_every);
}

Status Worker::end(std::optional<Totals>& all) {
  DUNLIN_ASSIGN(const bool changes, members_.change_before_end());
  return changes ? change_members() : finish(all);
}

Status Worker::change_members() {
  DUNLIN_TRY(members_.end_epoch());
  if (members_.is_leaving()) {
    has_left_ = true;
    if (reporter_) DUNLIN_TRY(reporter_->flush());
    members_.leave(exchange_);
    return Status::ok();
  }
  DUNLIN_TRY(members_.reform());
  return regroup();
}

// A rank trains only when all have been prepared. So if one of the members trains, all of them can
// but those that have just joined; otherwise all of them start again.
Status Worker::regroup() {
  DUNLIN_ASSIGN(const auto standings,
                share_standings(fabric_, "svm/standing", members_.membership(), standing(),
                                members_.timeout()));
  // Also in jobs that nothing joins: the rows of a rank that has died go to the others.
  shards_->want(members_.share());
  const auto trains = [](const Standing& each) { return each.stage == Stage::kTraining; };
  if (std::ranges::none_of(standings, trains)) return start_again();
  std::vector<Rank> newcomers;
  for (std::size_t i = 0; i < standings.size(); ++i) {
    if (standings[i].stage == Stage::kPreparing) newcomers.push_back(members_.ranks()[i]);
  }
  take_over(standings);
  LearnerState state{.t = schedule_};
  if (stage_ == Stage::kPreparing) {
    drop_group();
    DUNLIN_ASSIGN(group_,
                  Group::create(fabric_, options_, members_.membership(), data().features + 1));
    group_->allow(absence_);
  } else {
    state = learner_->state();
    DUNLIN_TRY(group_->rebuild(members_.membership()));
  }
  DUNLIN_TRY(change_reporter());
  DUNLIN_TRY(group_->hand_over(newcomers, members_.timeout()));
  stage_ = Stage::kTraining;
  DUNLIN_TRY(make_learner(&state));
  const MembersChange change = members_.settle(newcomers, exchange_);
  return reporter_ ? reporter_->change(training_time(), exchange_, change) : Status::ok();
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

Status Worker::start_again() {
  DUNLIN_WARN("epoch {}: continuing with {} of {} workers, from the start", members_.epoch(),
              members_.ranks().size(), members_.before().size());
  reporter_.reset();
  drop_group();
  return start();
}

void Worker::drop_group() {
  learner_.reset();
  group_.reset();
  members_.drop_links();
}

}  // namespace dunlin::svm
