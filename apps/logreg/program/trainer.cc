#include "apps/logreg/program/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "apps/logreg/program/data.h"
#include "apps/svm/linear_model.h"

namespace dunlin::logreg {
namespace {

using collective::Collective;
using collective::DataType;
using collective::ReduceOp;

// The tolerance of the reference. With a regularizer of weight 1 the error of its objective is at
// most half the square of the gradient's norm, far below the rounding of a double.
constexpr double kReferenceTolerance = 1e-10;
// The longest time that ranks wait for the reference, which one of them computes on all rows. The
// job's deadline is for work that all ranks do alike. A death is reported at once all the same.
constexpr Duration kLongestReference = std::chrono::hours(1);

// The number of doubles in the small all-reduces.
constexpr std::size_t kFew = 8;

}  // namespace

Result<bool> Trainer::run() {
  if (is_first()) DUNLIN_TRY(svm::check_model_path(options_.model));
  DUNLIN_TRY(load());
  DUNLIN_TRY(agree_on_data());
  DUNLIN_TRY(start());
  if (options_.has_reference) {
    if (is_first()) DUNLIN_TRY(solve_reference());
    DUNLIN_TRY(agree_on_reference());
  }
  while (stop_ == Stop::kNone) DUNLIN_TRY(iterate());
  DUNLIN_TRY(finish());
  return !options_.target_error || stop_ == Stop::kTarget;
}

Result<std::span<double>> Trainer::allocate(std::size_t count) {
  DUNLIN_ASSIGN(const auto memory, communicator_.allocate(count * sizeof(double)));
  return std::span(reinterpret_cast<double*>(memory.data()), count);
}

Status Trainer::load() {
  const svm::Shard shard{static_cast<std::uint32_t>(communicator_.rank()),
                         static_cast<std::uint32_t>(communicator_.size())};
  DUNLIN_ASSIGN(data_, load_training(options_, shard));
  design_.emplace(data_, options_.bias);
  if (is_first()) {
    DUNLIN_ASSIGN(test_, load_test(options_, data_));
  }
  return Status::ok();
}

// Every rank waits for the data of all ranks, and checks that all have the same set.
Status Trainer::agree_on_data() {
  const auto features = static_cast<double>(data_.features);
  const auto rows = static_cast<double>(data_.total_rows);
  const auto set = static_cast<double>(number_of(data_.whole) >> 16);  // 48 bits: not rounded
  std::array most{features, -features, rows, -rows, set, -set};
  DUNLIN_TRY(communicator_.all_reduce(most.data(), most.data(), most.size(),
                                      {DataType::kFloat64, ReduceOp::kMax}));
  if (most[0] == -most[1] && most[2] == -most[3] && most[4] == -most[5]) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("the ranks' training sets differ: {} to {} rows, {} to {} features; here {} "
                      "and {}, and the digest {}",
                      -most[3], most[2], -most[1], most[0], rows, features,
                      dunlin::to_string(data_.whole))};
}

Status Trainer::start() {
  const std::size_t count = design_->columns();
  DUNLIN_ASSIGN(few_, allocate(kFew));
  DUNLIN_ASSIGN(message_, allocate(count));
  admm_.emplace(*design_, AdmmOptions{.ranks = communicator_.size(),
                                      .cost = options_.cost,
                                      .rho = options_.rho,
                                      .is_adaptive = options_.is_adaptive,
                                      .tron_tolerance = options_.tron_tolerance});
  DUNLIN_ASSIGN(const auto algorithm, communicator_.choose(sum_of_messages()));
  DUNLIN_TRY(
      output_.event("config", {{"ranks", communicator_.size()},
                               {"data", options_.is_generated ? "generated" : options_.train},
                               {"rows", data_.total_rows},
                               {"features", data_.features},
                               {"cost", options_.cost},
                               {"bias", options_.bias},
                               {"rho", options_.rho},
                               {"adaptive_rho", options_.is_adaptive},
                               {"tron_tolerance", options_.tron_tolerance},
                               {"iterations", options_.iterations},
                               {"algorithm", algorithm->name},
                               {"groups", options_.groups}}));
  DUNLIN_TRY(
      output_.say(fmt::format("{} rows, {} features, {} ranks, all-reduce {}", data_.total_rows,
                              data_.features, communicator_.size(), algorithm->name)));
  // The first use maps the memory of the other ranks. It must not count as synchronizing, nor
  // happen when one of them may be gone.
  DUNLIN_TRY(communicator_.run(sum_of_messages()));
  std::array<double, 1> nothing{};
  DUNLIN_TRY(combine(nothing, ReduceOp::kSum));
  return communicator_.barrier();
}

// Runs on rank 0 only.
Status Trainer::solve_reference() {
  svm::Dataset whole;
  if (communicator_.size() > 1) {
    DUNLIN_ASSIGN(whole, load_training(options_, {}));
  }
  const Design design(communicator_.size() > 1 ? whole : data_, options_.bias);
  const TimePoint begin = clock_.now();
  DUNLIN_ASSIGN(const Reference reference, solve_whole(design, options_.cost, kReferenceTolerance));
  const double seconds = to_seconds(clock_.now() - begin);
  const TronReport& report = reference.report;
  optimum_ = report.value;
  const double ratio = report.gradient_norm / report.first_gradient_norm;
  DUNLIN_TRY(output_.event("reference", {{"objective", report.value},
                                         {"gradient_ratio", ratio},
                                         {"newton_iterations", report.iterations},
                                         {"hessian_products", report.products},
                                         {"time_s", seconds}}));
  return output_.say(
      fmt::format("reference: objective {:.12g} after {:.3f} s, gradient {:.1e} of that at 0",
                  report.value, seconds, ratio));
}

Status Trainer::agree_on_reference() {
  double& optimum = few_[0];
  optimum = optimum_.value_or(0);  // 0 on all ranks but rank 0, whose value is larger
  DUNLIN_ASSIGN(
      const auto request,
      communicator_.start(
          {Collective::kAllReduce, &optimum, &optimum, 1, {DataType::kFloat64, ReduceOp::kMax}}));
  const Duration deadline = communicator_.fabric().config().deadline;
  DUNLIN_TRY(communicator_.wait(request, std::max(deadline, kLongestReference)));
  optimum_ = optimum;
  return communicator_.barrier();
}

collective::Call Trainer::sum_of_messages() const {
  collective::Call call{Collective::kAllReduce, message_.data(), message_.data(), message_.size()};
  call.reduction = {DataType::kFloat64, ReduceOp::kSum};
  if (options_.algorithm != "auto") call.algorithm = options_.algorithm;
  return call;
}

Status Trainer::combine(std::span<double> values, ReduceOp op) {
  const std::span<double> place = few_.first(values.size());
  std::ranges::copy(values, place.begin());
  DUNLIN_TRY(
      communicator_.all_reduce(place.data(), place.data(), place.size(), {DataType::kFloat64, op}));
  std::ranges::copy(place, values.begin());
  return Status::ok();
}

Result<Times> Trainer::slowest(Duration compute, Duration sync) {
  std::array seconds{to_seconds(compute), to_seconds(sync), -to_seconds(sync),
                     to_seconds(compute + sync)};
  DUNLIN_TRY(combine(seconds, ReduceOp::kMax));
  return Times{seconds[0], seconds[1], -seconds[2], seconds[3]};
}

Status Trainer::not_finite(const char* what) const {
  return {Code::kOutOfRange,
          fmt::format("iteration {}: {} is not finite; try a smaller --cost, or another --rho",
                      moment_.iteration, what)};
}

Status Trainer::iterate() {
  moment_.iteration += 1;
  moment_.rho = admm_->rho();
  communicator_.fabric().begin_step(moment_.iteration);
  const TimePoint begin = clock_.now();
  moment_.tron = admm_->update_x(message_);
  const TimePoint is_ready = clock_.now();
  if (moment_.tron.end == TronEnd::kNotFinite) return not_finite("the new x");
  DUNLIN_TRY(communicator_.run(sum_of_messages()));
  const TimePoint is_reduced = clock_.now();
  admm_->update_z(message_);
  const Duration compute = clock_.now() - is_reduced + (is_ready - begin);
  const Duration sync = is_reduced - is_ready;
  own_compute_s_ += to_seconds(compute);
  own_sync_s_ += to_seconds(sync);
  DUNLIN_ASSIGN(moment_.times, slowest(compute, sync));
  return judge();
}

// The times of an iteration leave out what only judges and reports it.
Status Trainer::judge() {
  ConsensusAdmm::Addends sums = admm_->addends();
  DUNLIN_TRY(combine(sums, ReduceOp::kSum));
  moment_.time_s += moment_.times.elapsed;
  moment_.objective = admm_->objective(sums);
  moment_.residuals =
      admm_->residuals(sums, options_.absolute_tolerance, options_.relative_tolerance);
  if (optimum_) moment_.relative_error = std::abs(moment_.objective - *optimum_) / *optimum_;
  if (!std::isfinite(moment_.objective)) return not_finite("the objective");
  sum_.compute += moment_.times.compute;
  sum_.sync += moment_.times.sync;
  sum_.sync_least += moment_.times.sync_least;
  stop_ = stop_after(moment_);
  admm_->adapt(moment_.residuals);
  DUNLIN_TRY(output_.progress(moment_, stop_ != Stop::kNone));
  // All ranks begin at once. Otherwise the reporting of rank 0 would look like slow computing.
  return communicator_.barrier();
}

// The same on all ranks, since its inputs are.
Trainer::Stop Trainer::stop_after(const Moment& moment) const {
  if (options_.target_error) {
    if (*moment.relative_error <= *options_.target_error) return Stop::kTarget;
  } else if (moment.residuals.are_small()) {
    return Stop::kResiduals;
  }
  return moment.iteration == options_.iterations ? Stop::kIterations : Stop::kNone;
}

Result<Json> Trainer::times_by_rank() {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  const auto rank = static_cast<std::size_t>(communicator_.rank());
  std::vector<double> seconds(2 * ranks);
  seconds[rank] = own_compute_s_;
  seconds[ranks + rank] = own_sync_s_;
  DUNLIN_TRY(communicator_.all_reduce(seconds.data(), seconds.data(), seconds.size(),
                                      {DataType::kFloat64, ReduceOp::kSum}));
  const auto middle = seconds.begin() + communicator_.size();
  return Json{{"compute_s", std::vector<double>(seconds.begin(), middle)},
              {"sync_s", std::vector<double>(middle, seconds.end())}};
}

Status Trainer::finish() {
  DUNLIN_ASSIGN(const Json by_rank, times_by_rank());
  if (!is_first()) return Status::ok();
  const char* const reason = stop_ == Stop::kTarget      ? "target"
                             : stop_ == Stop::kResiduals ? "residuals"
                                                         : "iterations";
  Json final = {{"stopped_by", reason},
                {"iterations", moment_.iteration},
                {"objective", moment_.objective},
                {"relative_error", optional(moment_.relative_error)},
                {"time_s", moment_.time_s},
                {"compute_s", sum_.compute},
                {"sync_s", sum_.sync},
                {"sync_least_s", sum_.sync_least},
                {"by_rank", by_rank}};
  std::string text = fmt::format(
      "{} iterations (stopped by {}): objective {:.12g}{}\n{:.4f} s: compute {:.4f} s, sync {:.4f} "
      "s "
      "(of the slowest rank in each iteration; sync of the last rank to arrive: {:.4f} s)",
      moment_.iteration, reason, moment_.objective,
      moment_.relative_error ? fmt::format(", relative error {:.3e}", *moment_.relative_error) : "",
      moment_.time_s, sum_.compute, sum_.sync, sum_.sync_least);
  if (test_) {
    const Design test(*test_, options_.bias);
    const std::uint64_t right = test.count_right(admm_->z());
    const double accuracy = static_cast<double>(right) / static_cast<double>(test.rows());
    final["test_rows"] = test.rows();
    final["test_accuracy"] = accuracy;
    text += fmt::format("\naccuracy {:.4f} % ({}/{})", 100 * accuracy, right, test.rows());
  }
  if (!options_.model.empty()) {
    const auto z = admm_->z();
    DUNLIN_TRY(svm::save_model(
        options_.model,
        svm::make_model(svm::Loss::kLog, data_, options_.bias, {z.begin(), z.end()})));
  }
  DUNLIN_TRY(output_.event("final", final));
  return output_.say(text);
}

}  // namespace dunlin::logreg
