#include "apps/svm/program/worker.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <set>
#include <thread>
#include <utility>

#include "apps/job.h"
#include "apps/svm/linear_model.h"
#include "apps/svm/program/resumption.h"
#include "apps/svm/program/totals_of_all.h"
#include "apps/told_number.h"
#include "runtime/log.h"

namespace dunlin::svm {
namespace {

// An evaluation may take this many times as long as the first one, which had the cores of the host
// for itself.
constexpr int kEvaluationMargin = 20;

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Worker::Worker(transport::Fabric& fabric, const Options& options)
    : fabric_(fabric),
      options_(options),
      members_(fabric, {.program = "dunlin-svm",
                        .unit = "exchanges",
                        .on_peer_loss = options.on_peer_loss,
                        .has_common_steps = options.sync != collective::SyncMode::kAsync}) {}

Status Worker::prepare() {
  if (members_.is_first()) DUNLIN_TRY(check_model_path(options_.model));
  DUNLIN_TRY(load_data());
  // In a job that may grow, any member may be told to stop by one that has a target.
  if (options_.target_objective || members_.is_elastic()) {
    DUNLIN_ASSIGN(stop_, StopSignal::create(fabric_));
  }
  return survive(members_.is_newcomer() ? arrive() : start());
}

void Worker::begin() {
  stage_ = Stage::kPreparing;
  learning_ = options_.learner;
  learning_.shard = static_cast<std::uint32_t>(fabric_.rank().value());
}

Status Worker::start() {
  begin();
  DUNLIN_TRY(agree(fabric_, fmt::format("svm/terms/{}", members_.epoch()), members_.ranks(),
                   terms_of_start(), MemberDeath::kIsAnError, fabric_.config().bootstrap_timeout));
  DUNLIN_TRY(agree_on_eta0());
  DUNLIN_TRY(agree_on_run());
  DUNLIN_ASSIGN(group_,
                Group::create(fabric_, options_, members_.membership(), data().features + 1));
  last_exchange_ = planned_exchanges();
  if (options_.resume.empty()) {
    DUNLIN_TRY(make_learner(nullptr));
  } else {
    DUNLIN_TRY(resume());
  }
  if (members_.is_elastic() && group_->is_leader()) DUNLIN_TRY(members_.post_terms(terms()));
  const bool is_continued = !options_.resume.empty() || members_.epoch() > 0;
  if (group_->is_leader()) DUNLIN_TRY(make_reporter(is_continued));
  DUNLIN_TRY(allow_for_evaluations());
  stage_ = Stage::kPrepared;
  DUNLIN_TRY(fabric_.bootstrap().barrier(fmt::format("svm/start/{}", members_.epoch()),
                                         fabric_.config().bootstrap_timeout));
  stage_ = Stage::kTraining;
  (void)members_.settle({}, exchange_);
  return Status::ok();
}

Status Worker::load_data() {
  const Shard shard = members_.first_share();
  DUNLIN_ASSIGN(
      auto loaded,
      Shards<Dataset>::load([this](Shard wanted) { return load_shard(options_, wanted); }, shard));
  shards_ = std::move(loaded);
  if (!options_.checkpoint.empty() || !options_.resume.empty()) digest_ = digest_of(data());
  if (data().rows() == 0) {
    return {Code::kInvalidArgument, fmt::format("rank {} of {} has no rows: the set has {}",
                                                shard.rank, shard.ranks, data().total_rows)};
  }
  if (data().features == 0 || data().features > kMostFeatures) {
    return {Code::kInvalidArgument,
            fmt::format("{} features; a model has 1 to {}", data().features, kMostFeatures)};
  }
  if (options_.straggler && options_.straggler->rank >= fabric_.size()) {
    return {Code::kInvalidArgument, fmt::format("--straggler: rank {} in a job of {}",
                                                options_.straggler->rank, fabric_.size())};
  }
  return Status::ok();
}

Result<std::uint64_t> Worker::found_by_leader(const std::string& what,
                                              const std::function<Result<std::uint64_t>()>& find) {
  const std::string key = fmt::format("svm/{}/{}", what, members_.epoch());
  const Rank leader = members_.ranks().front();
  Bootstrap& bootstrap = fabric_.bootstrap();
  if (fabric_.rank() == leader) {
    DUNLIN_ASSIGN(const std::uint64_t own, find());
    DUNLIN_TRY(bootstrap.publish(key, ByteWriter().number(own).take()));
    return own;
  }
  DUNLIN_ASSIGN(const Bytes found, lookup_among(bootstrap, members_.ranks(), leader, key,
                                                fabric_.config().bootstrap_timeout));
  return told_number<std::uint64_t>(found, what);
}

// The leader searches on its shard, or on rows dealt in turns, since a skewed shard is unlike
// the whole set. A resumed run keeps the rate that it had.
Status Worker::agree_on_eta0() {
  if (learning_.eta0 > 0 || !options_.resume.empty()) return Status::ok();
  DUNLIN_ASSIGN(const std::uint64_t found, found_by_leader("eta0", [&]() -> Result<std::uint64_t> {
                  std::optional<Dataset> dealt;
                  if (!options_.shard_skew.is_none()) {
                    DUNLIN_ASSIGN(dealt, load_dealt_rows(options_, members_.share()));
                  }
                  DUNLIN_ASSIGN(const double eta0, find_eta0(dealt ? *dealt : data(), learning_));
                  return std::bit_cast<std::uint64_t>(eta0);
                }));
  learning_.eta0 = std::bit_cast<double>(found);
  return Status::ok();
}

Status Worker::agree_on_run() {
  DUNLIN_ASSIGN(run_, found_by_leader("run", [] { return Result<std::uint64_t>(new_run()); }));
  return Status::ok();
}

// The other ranks wait while the leader evaluates, so that the group has to know how long this
// takes.
Status Worker::allow_for_evaluations() {
  if (options_.is_deferred) return Status::ok();
  DUNLIN_ASSIGN(const std::uint64_t taken, found_by_leader("evaluation", [&] {
                  const TimePoint before = fabric_.clock().now();
                  reporter_->evaluate_once(group_->model());
                  return Result<std::uint64_t>(
                      static_cast<std::uint64_t>((fabric_.clock().now() - before).count()));
                }));
  group_->allow(kEvaluationMargin * Duration(static_cast<Duration::rep>(taken)));
  return Status::ok();
}

Status Worker::make_learner(const LearnerState* state) {
  DUNLIN_ASSIGN(Learner made, Learner::create(group_->model(), data(), learning_));
  learner_.emplace(std::move(made));
  return state != nullptr ? learner_->restore(*state) : Status::ok();
}

Status Worker::resume() {
  Checkpoint fresh;
  fresh.rank = static_cast<std::uint32_t>(fabric_.rank().value());
  fresh.ranks = founders();
  fresh.run = run_;
  fresh.shard_rows = data().rows();
  fresh.data = digest_;
  fresh.options = learning_;
  fresh.model.resize(group_->model().size());
  fresh.averaged = options_.has_average ? 1 : 0;
  DUNLIN_ASSIGN(const Checkpoint saved,
                svm::resume(fabric_, members_.membership(), options_, data().total_rows, fresh));
  learning_ = saved.options;
  std::copy(saved.model.begin(), saved.model.end(), group_->model().begin());
  if (options_.has_average) average_.restore(saved.averaged, saved.average);
  exchange_ = saved.iteration;
  examples_ = exchange_ * options_.sync_every * group_->members().size();
  run_ = saved.run;
  if (!options_.checkpoint.empty()) checkpoints_.resume(saved);
  return make_learner(&saved.state);
}

// The same number on all ranks, though their shards may differ by a row.
std::uint64_t Worker::planned_exchanges() const {
  const auto ranks = static_cast<double>(founders());
  const double rows = std::ceil(static_cast<double>(data().total_rows) / ranks);
  return static_cast<std::uint64_t>(
      std::ceil(options_.epochs * rows / static_cast<double>(options_.sync_every)));
}

Status Worker::make_reporter(bool is_continued) {
  DUNLIN_ASSIGN(reporter_, Reporter::create(options_, is_continued));
  return reporter_->start({static_cast<int>(group_->members().size()),
                           fabric_.bootstrap().job().launcher, transports(), data().total_rows,
                           last_exchange_, learning_.eta0});
}

std::string Worker::transports() const {
  std::set<std::string> used;
  for (const Rank member : group_->members()) {
    if (const auto name = fabric_.transport_of(member); !name.empty()) used.emplace(name);
  }
  std::string text;
  for (const std::string& name : used) text += (text.empty() ? "" : "+") + name;
  return text.empty() ? "none" : text;
}

double Worker::training_time() const {
  return to_seconds(fabric_.clock().now() - began_ - paused_);
}

Result<bool> Worker::run() {
  if (began_ == TimePoint()) began_ = fabric_.clock().now();
  if (members_.is_elastic()) retire_.emplace(std::vector<int>{SIGTERM}, 1);
  const std::uint64_t eval_every = options_.eval_every > 0
                                       ? options_.eval_every
                                       : std::max<std::uint64_t>(1, last_exchange_ / 40);
  const std::uint64_t save_every = options_.checkpoint_every > 0
                                       ? options_.checkpoint_every
                                       : std::max<std::uint64_t>(1, last_exchange_ / 10);
  std::optional<double> time_s;
  std::optional<Totals> all;
  while (!all) {
    Status status;
    if (exchange_ < last_exchange_) {
      status = take_turn(eval_every, save_every);
    } else {
      if (!time_s) time_s = training_time();
      status = end(all);
    }
    if (has_left_) return true;
    DUNLIN_TRY(survive(std::move(status)));
  }
  if (reporter_) {
    if (!options_.model.empty()) DUNLIN_TRY(save_result());
    DUNLIN_TRY(reporter_->finish(*time_s, totals_, *all, group_->epoch()));
  }
  return !options_.target_objective || all->reached_target > 0;
}

// Does what comes after an exchange: evaluation, checkpoint, and the check of the stop signal.
Status Worker::follow_up(std::uint64_t eval_every, std::uint64_t save_every) {
  const bool is_last = exchange_ == last_exchange_;
  if (exchange_ % eval_every == 0 || is_last) DUNLIN_TRY(report_progress(is_last));
  if (!options_.checkpoint.empty() && (exchange_ % save_every == 0 || is_last))
    DUNLIN_TRY(save_checkpoint());
  if (stop_ && stop_->last_exchange() != 0) {
    last_exchange_ =
        options_.sync == collective::SyncMode::kAsync ? exchange_ : stop_->last_exchange();
  }
  return Status::ok();
}

// The rows that this worker has since the last change may have been read by now.
Status Worker::refresh_data() {
  const auto has_changed = shards_->refresh();
  if (!has_changed) {
    DUNLIN_WARN("rank {} cannot read the rows that it is to have, and keeps its former ones: {}",
                fabric_.rank().value(), has_changed.status().message());
    return Status::ok();
  }
  if (!*has_changed) return Status::ok();
  const LearnerState state{.t = learner_->state().t};
  return make_learner(&state);
}

Status Worker::train_step() {
  DUNLIN_TRY(refresh_data());
  fabric_.begin_step(exchange_ + 1);
  const double cpu_before = thread_cpu_seconds();
  {
    const TraceSpan span(fabric_.trace(), "train", static_cast<std::int64_t>(exchange_ + 1));
    learner_->train(options_.sync_every);
    learner_->materialize();
    const double compute_s = thread_cpu_seconds() - cpu_before;
    straggle(compute_s);
    totals_.compute_s += compute_s;
  }
  const TimePoint before = fabric_.clock().now();
  DUNLIN_ASSIGN(const collective::ReduceReport report, group_->exchange());
  totals_.add(report, to_seconds(fabric_.clock().now() - before));
  if (options_.has_average) average_.add(group_->model());
  totals_.examples += options_.sync_every;
  examples_ += options_.sync_every * group_->members().size();
  ++exchange_;
  return Status::ok();
}

// Sleeps instead of computing, since a slower host would not use the cores of this one.
void Worker::straggle(double compute_s) const {
  if (!options_.straggler || options_.straggler->rank != fabric_.rank().value()) return;
  std::this_thread::sleep_for(
      std::chrono::duration<double>((options_.straggler->factor - 1) * compute_s));
}

Status Worker::report_progress(bool is_last) {
  if (!reporter_) return Status::ok();
  const TimePoint before = fabric_.clock().now();
  const Moment now{training_time(), exchange_, examples_, totals_};
  DUNLIN_ASSIGN(const auto objective, reporter_->progress(now, result()));
  paused_ += fabric_.clock().now() - before;
  reported_ = exchange_;
  return objective ? check_target(*objective, is_last) : Status::ok();
}

Status Worker::check_target(double objective, bool is_last) {
  if (!options_.target_objective || objective > *options_.target_objective ||
      totals_.reached_target > 0) {
    return Status::ok();
  }
  totals_.reached_target = 1;
  if (is_last) return Status::ok();
  const std::uint64_t furthest = exchange_ + group_->members().size();
  return stop_->announce(std::min(furthest, last_exchange_), group_->members());
}

Checkpoint Worker::checkpoint() const {
  const auto model = group_->model();
  return {static_cast<std::uint32_t>(fabric_.rank().value()),
          founders(),
          run_,
          group_->epoch(),
          exchange_,
          data().rows(),
          digest_,
          learning_,
          learner_->state(),
          {model.begin(), model.end()},
          average_.count(),
          {average_.average().begin(), average_.average().end()}};
}

std::span<const float> Worker::result() const {
  return average_.count() > 0 ? average_.average() : std::span<const float>(group_->model());
}

// The bias has the value 1 in every row.
Status Worker::save_result() const {
  const std::span<const float> weights = result();
  return save_model(options_.model,
                    make_model(learning_.loss, data(), 1.0, {weights.begin(), weights.end()}));
}

// Saves nothing once the workers have changed: the files are those of the ranks at the start.
Status Worker::save_checkpoint() {
  if (group_->epoch() > 0) {
    if (group_->is_leader() && !std::exchange(has_warned_, true)) {
      DUNLIN_WARN("no checkpoints are saved any more, since the workers have changed");
    }
    return Status::ok();
  }
  const TraceSpan span(fabric_.trace(), "checkpoint", static_cast<std::int64_t>(exchange_));
  return checkpoints_.save(checkpoint());
}

// The last state may be unreported: a resumed run may have nothing left to do, and the number of
// exchanges may have come to its end by a stop signal or a death.
Status Worker::finish(std::optional<Totals>& all) {
  if (reported_ != exchange_) DUNLIN_TRY(report_progress(true));
  DUNLIN_ASSIGN(all, collect_totals(fabric_, members_.membership(), totals_));
  return Status::ok();
}

}  // namespace dunlin::svm
