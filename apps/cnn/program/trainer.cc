#include "apps/cnn/program/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <thread>
#include <utility>

#include "collectives/training/methods/partial.h"
#include "runtime/log.h"

namespace dunlin::cnn {

using training::MethodKind;

// Under dunlin-run, a Ctrl-C comes twice: from the terminal and from dunlin-run.
constexpr int kToleratedInterrupts = 2;

// The longest time of rank 0's final tests of two models.
constexpr Duration kLongestTest = std::chrono::hours(1);

void RunningMeans::add(double new_loss, double new_accuracy) {
  const double weight = 1.0 / static_cast<double>(std::min(++batches, kWindow));
  loss += weight * (new_loss - loss);
  accuracy += weight * (new_accuracy - accuracy);
}

const char* Trainer::to_string(Wish wish) {
  switch (wish) {
    case Wish::kNone:
      return "others";
    case Wish::kIterations:
      return "iterations";
    case Wish::kTarget:
      return "target";
    case Wish::kDuration:
      return "duration";
    case Wish::kSignal:
      return "signal";
  }
  return "?";
}

Trainer::Trainer(transport::Fabric& fabric, const Options& options, Output& output)
    : fabric_(fabric),
      options_(options),
      output_(output),
      members_(fabric, {.program = "dunlin-cnn",
                        .unit = "iterations",
                        .on_peer_loss = survives_deaths(options.method) ? OnPeerLoss::kContinue
                                                                        : options.on_peer_loss,
                        .has_common_steps = !ends_alone(options.method)}),
      team_(fabric, members_, options.method),
      method_(options.method),
      slowdown_(options.slowdowns, fabric.rank(), team_.workers(), options.seed),
      files_(options.checkpoint, static_cast<std::uint32_t>(team_.rank()),
             static_cast<std::uint32_t>(team_.workers())) {}

Result<bool> Trainer::run() {
  DUNLIN_TRY(check_options());
  DUNLIN_TRY(prepare());
  DUNLIN_ASSIGN(timeout_, find_timeout());
  members_.allow(timeout_);
  // Lives until everything is reported. A server ignores it: it ends when the workers have left.
  const Interrupt interrupt({SIGINT, SIGTERM}, kToleratedInterrupts);
  interrupt_ = &interrupt;
  DUNLIN_TRY(members_.is_newcomer() ? survive(arrive()) : start());
  if (sync_->is_server()) {
    DUNLIN_TRY(sync_->serve());
    report_ = sync_->report();
    sync_.reset();  // this thread owns the fabric and the bootstrap again
  } else {
    DUNLIN_ASSIGN(const bool stays, train());
    if (!stays) return true;
  }
  DUNLIN_TRY(gather());
  return conclude();
}

// Ranks that died during the training are missing here as well.
Status Trainer::gather() {
  if (takes_newcomers()) return Status::ok();  // end() has done it
  const bool was_first = team_.is_first();
  auto gathered = team_.gather("trained", timeout_);
  if (gathered.code() != Code::kPeerDead || !survives_deaths(method_)) return gathered;
  DUNLIN_TRY(team_.gather_survivors());
  if (team_.is_first() && !was_first) {
    DUNLIN_ASSIGN(output_, Output::take_over(options_));
  }
  return Status::ok();
}

double Trainer::training_time() const {
  return to_seconds(fabric_.clock().now() - began_ - paused_);
}

double Trainer::learning_rate() const {
  const double epoch = static_cast<double>(iteration_) / static_cast<double>(per_epoch_);
  return options_.learning_rate *
         std::pow(options_.decay, std::floor(epoch / options_.decay_every));
}

// Returns the period that was asked for, or the one that gives `times` periods in the run.
std::uint64_t Trainer::every(std::uint64_t asked, std::uint64_t times) const {
  return asked > 0 ? asked : std::max<std::uint64_t>(1, planned_ / times);
}

std::uint64_t Trainer::checkpoint_every() const {
  const std::uint64_t step = end_step();
  return (every(options_.checkpoint_every, 10) + step - 1) / step * step;
}

Moment Trainer::moment() const {
  Moment now;
  now.time_s = training_time();
  now.iteration = iteration_;
  now.epoch = static_cast<double>(iteration_) / static_cast<double>(per_epoch_);
  now.learning_rate = learning_rate();
  now.loss = means_.loss;
  now.accuracy = means_.accuracy;
  now.bytes_sent = report_.bytes_sent;
  now.wait_s = to_seconds(report_.waited);
  now.compute_s = compute_s_;
  now.samples_per_s = static_cast<double>((iteration_ - first_) * options_.batch_size) /
                      (now.time_s - before_joining_s_);
  return now;
}

// Workers that end together do so at multiples of this number of iterations. Between these, some
// workers may be further than others.
std::uint64_t Trainer::end_step() const {
  if (ends_alone(method_)) return 1;
  if (method_.kind == MethodKind::kLocalSgd) return method_.section_length;
  if (method_.kind == MethodKind::kPartial) return training::kSpread * method_.section_length;
  return 1;
}

// In an elastic job, SIGTERM asks this rank alone to leave.
bool Trainer::wants_to_end() const {
  return interrupt_->is_asked(SIGINT) || (!members_.is_elastic() && interrupt_->is_asked());
}

Trainer::Wish Trainer::wish() const {
  const bool is_judge = team_.is_first() || ends_alone(method_);
  if (iteration_ >= planned_) return Wish::kIterations;
  if (wants_to_end()) return Wish::kSignal;
  if (options_.target_loss && is_judge && means_.loss <= *options_.target_loss) {
    return Wish::kTarget;
  }
  if (options_.duration_s && training_time() >= *options_.duration_s) return Wish::kDuration;
  return Wish::kNone;
}

Result<bool> Trainer::train() {
  if (began_ == TimePoint()) began_ = fabric_.clock().now();
  if (iteration_ >= planned_) {  // a resumed run may have nothing left to do
    is_over_ = true;
    wish_ = Wish::kIterations;
  }
  while (!is_done_) {
    Status status = is_over_ ? end() : take_turn();
    if (has_left_) return false;
    DUNLIN_TRY(survive(std::move(status)));
  }
  return true;
}

Status Trainer::end() {
  DUNLIN_ASSIGN(const bool changes, ask_whether([this] { return members_.change_before_end(); }));
  if (changes) return change_members();
  // If a member dies before all have come here, this is done again with the others.
  const bool is_again = time_s_ > 0;
  if (!is_again) time_s_ = training_time();
  DUNLIN_TRY(sync_->leave());
  if (!is_again && !options_.checkpoint.empty()) DUNLIN_TRY(save_checkpoint());
  DUNLIN_TRY(end_synchronizer());
  if (takes_newcomers()) DUNLIN_TRY(team_.gather("trained", timeout_));
  is_done_ = true;
  return Status::ok();
}

Status Trainer::step() {
  fabric_.begin_step(iteration_ + 1);
  DUNLIN_TRY(sync_->begin(iteration_));
  DUNLIN_TRY(before_step());
  feed_->refresh();
  const TimePoint before = fabric_.clock().now();
  auto judgment = network_->train(
      feed_->at(iteration_),
      [this](std::size_t first, std::size_t count) { return sync_->ready(first, count); });
  if (!judgment) {
    const bool is_divergence = judgment.status().code() == Code::kOutOfRange;
    return std::move(judgment).status().with_context(
        fmt::format("iteration {}{}", iteration_,
                    is_divergence ? " (a smaller --learning-rate may help)" : ""));
  }
  const Duration computed = fabric_.clock().now() - before;
  std::this_thread::sleep_for(slowdown_.after(iteration_, computed));
  compute_s_ += to_seconds(computed);
  means_.add(judgment->loss,
             static_cast<double>(judgment->right) / static_cast<double>(options_.batch_size));
  const auto rate = static_cast<float>(learning_rate());
  ++iteration_;
  if (wish_ == Wish::kNone) wish_ = wish();
  DUNLIN_ASSIGN(is_over_, sync_->finish(rate, wish_ != Wish::kNone));
  safe_.clear();
  report_ = past_;
  report_ += sync_->report();
  if (!is_over_ && iteration_ % every(options_.report_every, 40) != 0) return Status::ok();
  return team_.is_first() ? output_.progress(moment()) : Status::ok();
}

// Does what needs the model, which this thread owns when an iteration has begun.
Status Trainer::before_step() {
  const bool is_new = iteration_ > first_;
  if (is_new && !options_.checkpoint.empty() && iteration_ % checkpoint_every() == 0) {
    DUNLIN_TRY(save_checkpoint());
  }
  // An all-reduce in place, which a death leaves half done.
  const bool is_average_next =
      method_.kind == MethodKind::kLocalSgd && (iteration_ + 1) % method_.section_length == 0;
  if (is_average_next && options_.on_peer_loss == OnPeerLoss::kContinue) {
    DUNLIN_ASSIGN(safe_, device_->read(sync_->parameters()));
  }
  if (!is_new || !examiner_.has_images() || options_.evaluate_every == 0 ||
      iteration_ % options_.evaluate_every != 0) {
    return Status::ok();
  }
  const TimePoint before = fabric_.clock().now();
  const Moment now = moment();
  DUNLIN_ASSIGN(const TestResult result, examiner_.test(*network_));
  DUNLIN_TRY(output_.evaluation(now, result));
  paused_ += fabric_.clock().now() - before;
  return Status::ok();
}

Result<Checkpoint> Trainer::checkpoint() {
  Checkpoint state;
  state.rank = static_cast<std::uint32_t>(team_.rank());
  state.ranks = static_cast<std::uint32_t>(team_.workers());
  state.run = run_;
  state.iteration = iteration_;
  state.settings = settings();
  state.loss = means_.loss;
  state.accuracy = means_.accuracy;
  state.batches = means_.batches;
  DUNLIN_ASSIGN(state.parameters, device_->read(sync_->parameters()));
  DUNLIN_ASSIGN(state.velocity, device_->read(sync_->velocity()));
  DUNLIN_ASSIGN(state.statistics, device_->read(network_->statistics()));
  return state;
}

// Saves nothing once the workers have changed: the files are those of the workers at the start.
Status Trainer::save_checkpoint() {
  if (members_.epoch() > 0) {
    if (team_.is_first() && !std::exchange(has_warned_, true))
      DUNLIN_WARN("no checkpoints are saved any more, since the workers have changed");
    return Status::ok();
  }
  DUNLIN_ASSIGN(const Checkpoint state, checkpoint());
  DUNLIN_TRY(cnn::save_checkpoint(files_.path(iteration_), state));
  files_.note_saved(iteration_);
  return Status::ok();
}

Result<bool> Trainer::conclude() {
  Totals own;
  own.iterations = static_cast<double>(iteration_ - first_);
  own.time_s = time_s_ - before_joining_s_;
  own.compute_s = compute_s_;
  own.wait_s = to_seconds(report_.waited);
  own.bytes_sent = static_cast<double>(report_.bytes_sent);
  own.has_reached_target = wish_ == Wish::kTarget ? 1 : 0;
  std::vector<float> model = state_.parameters;
  model.insert(model.end(), state_.statistics.begin(), state_.statistics.end());
  model.resize(parameters_ + statistics_);
  std::vector<float> mean = model;
  DUNLIN_ASSIGN(const std::vector<Totals> all, team_.combine(own, mean));
  if (team_.is_first()) DUNLIN_TRY(tell_end(all, model, mean));
  // A rank that ended with exit code 3 earlier would make a launcher end rank 0 while it tests.
  DUNLIN_TRY(team_.gather("told", kLongestTest));
  const Totals& judge = all[team_.members().front().index()];
  return !options_.target_loss || judge.has_reached_target > 0;
}

Status Trainer::tell_end(const std::vector<Totals>& all, const std::vector<float>& model,
                         const std::vector<float>& mean) {
  Json by_rank;
  double rate = 0;
  double bytes = 0;
  for (const Totals& one : all) {
    by_rank["iterations"].push_back(static_cast<std::uint64_t>(one.iterations));
    by_rank["time_s"].push_back(one.time_s);
    by_rank["compute_s"].push_back(one.compute_s);
    by_rank["wait_s"].push_back(one.wait_s);
    by_rank["bytes_sent"].push_back(static_cast<std::uint64_t>(one.bytes_sent));
    if (one.time_s > 0) rate += one.iterations / one.time_s;
    bytes += one.bytes_sent;
  }
  const double images_per_s = rate * static_cast<double>(options_.batch_size);
  Json final = {{"stopped_by", to_string(wish_)},
                {"iterations", iteration_},
                {"time_s", time_s_},
                {"loss", means_.loss},
                {"accuracy", means_.accuracy},
                {"iterations_per_s", rate},
                {"samples_per_s", images_per_s},
                {"bytes_sent", static_cast<std::uint64_t>(bytes)},
                {"by_rank", by_rank}};
  std::vector<int> lost;
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    if (fabric_.peers().state(Rank(rank)) == PeerState::kDead) lost.push_back(rank);
  }
  if (!lost.empty()) final["lost_ranks"] = lost;
  std::string text = fmt::format(
      "{} iterations in {:.2f} s (ended by {}): loss {:.4f}, accuracy {:.2f} %\n"
      "all ranks: {:.2f} iterations/s, {:.1f} images/s, {:.1f} MB sent",
      iteration_, time_s_, to_string(wish_), means_.loss, 100 * means_.accuracy, rate, images_per_s,
      bytes * 1e-6);
  if (!lost.empty()) text += fmt::format("\nlost on the way: ranks {}", fmt::join(lost, ", "));
  // The mean of the workers' models comes second, since its statistics replace those of rank 0.
  const auto tell_test = [&](const char* prefix, const std::string& whose,
                             const std::vector<float>& tested) -> Status {
    DUNLIN_ASSIGN(const TestResult result, examiner_.test(*network_, *device_, tested));
    final[fmt::format("{}test_loss", prefix)] = result.loss;
    final[fmt::format("{}test_accuracy", prefix)] = result.accuracy;
    text += fmt::format("\ntest, {}: loss {:.4f}, accuracy {:.2f} %", whose, result.loss,
                        100 * result.accuracy);
    return Status::ok();
  };
  if (examiner_.has_images()) {
    DUNLIN_TRY(tell_test("", fmt::format("rank {}'s model", team_.rank()), model));
    DUNLIN_TRY(tell_test("mean_", "the workers' mean model", mean));
  }
  DUNLIN_TRY(output_.event("final", final));
  return output_.say(text);
}

}  // namespace dunlin::cnn
