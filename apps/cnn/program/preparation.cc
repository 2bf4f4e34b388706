// The part of Trainer that runs before the training.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "apps/cnn/gpu/gpu_network.h"
#include "apps/cnn/program/trainer.h"
#include "apps/cnn/torch_network.h"
#include "apps/told_number.h"

namespace dunlin::cnn {
namespace {

// Ranks may take this many times as long as rank 0's trial iteration: they may have slower hosts,
// and share their processors.
constexpr double kTimeoutFactor = 30;
// With --duration, the slowest worker may take this many times as long.
constexpr double kDurations = 3;
// No rank waits longer unless --deadline says so. A Duration can hold this.
constexpr std::chrono::duration<double> kLongestTimeout = std::chrono::days(30);
// Elements of the gradient that are averaged together, on GPUs: 16 MiB, for which the time of a
// kernel's start counts little.
constexpr std::size_t kGpuPieceElements = std::size_t{1} << 22;

int threads_of(const Options& options, const JobInfo& job) {
  if (options.threads > 0) return options.threads;
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, processors / job.local_size);
}

}  // namespace

// What this program cannot do is refused before any rank reads its data.
Status Trainer::check_options() const {
  const std::string name = training::to_string(method_.kind);
  const bool is_static = method_.groups == collective::GroupSource::kStatic;
  const std::string method = method_.kind == training::MethodKind::kPartial && is_static
                                 ? name + " with static groups"
                                 : name;
  constexpr const char* kThatDo =
      "stochastic, local-sgd, and partial with random, buffered or smart groups do";
  if (members_.is_elastic() && !takes_newcomers()) {
    return {Code::kInvalidArgument,
            fmt::format("--method {}: its workers cannot change, so that it takes no part in a job "
                        "that processes may join (dunlin-run --max-ranks, --join); {}",
                        method, kThatDo)};
  }
  if (options_.on_peer_loss == OnPeerLoss::kContinue && !takes_newcomers() &&
      !survives_deaths(method_)) {
    return {Code::kInvalidArgument,
            fmt::format("--on-peer-loss continue: {} cannot go on without a worker; {}", method,
                        kThatDo)};
  }
  return Status::ok();
}

Status Trainer::prepare() {
  for (const training::SlowdownRule& rule : options_.slowdowns) {
    if (!rule.is_random && rule.rank.value() >= team_.most_workers()) {
      return {Code::kInvalidArgument, fmt::format("--slowdown: worker {}, there are {}",
                                                  rule.rank.value(), team_.most_workers())};
    }
  }
  DUNLIN_TRY(load_images());
  DUNLIN_TRY(check_sections());
  Architecture architecture =
      make_architecture(options_.model, data_.channels, data_.classes, options_.has_batch_norm);
  parameters_ = method_.count = architecture.count;
  statistics_ = architecture.statistics;
  DUNLIN_TRY(choose_device());
  DUNLIN_TRY(training::check(method_, team_.size()));
  DUNLIN_TRY(make_network(std::move(architecture)));
  if (members_.is_newcomer()) return Status::ok();
  DUNLIN_TRY(agree_on_run());
  return find_checkpoint();
}

Status Trainer::load_images() {
  std::optional<Shard> share = members_.first_share();
  if (!team_.is_worker()) share.reset();
  if (share && !members_.is_newcomer()) share->ranks = static_cast<std::uint32_t>(team_.workers());
  DUNLIN_ASSIGN(data_, load_data(options_, share, team_.most_workers(),
                                 fabric_.bootstrap().job().local_size));
  const std::size_t batches = data_.total / static_cast<std::size_t>(team_.workers());
  per_epoch_ = batches / options_.batch_size;
  planned_ = options_.iterations > 0 ? options_.iterations
                                     : static_cast<std::uint64_t>(std::ceil(
                                           options_.epochs * static_cast<double>(per_epoch_)));
  if (share) feed_.emplace(options_, data_, *share, team_.rank());
  if (!team_.is_first() || members_.is_newcomer()) return Status::ok();
  DUNLIN_TRY(load_test(options_, data_));
  if (data_.test) examiner_.take(*data_.test, data_.normalization);
  return Status::ok();
}

Status Trainer::check_sections() const {
  const std::uint64_t step = end_step();
  if (planned_ > 0 && step > planned_) {
    return {Code::kInvalidArgument,
            fmt::format("--section-length {}: workers can end after {} iterations at the earliest, "
                        "of {} that are planned",
                        method_.section_length, step, planned_)};
  }
  if (options_.checkpoint_every % step != 0) {
    return {Code::kInvalidArgument,
            fmt::format("--checkpoint-every {}: no multiple of {} iterations, after which all "
                        "workers have come as far",
                        options_.checkpoint_every, step)};
  }
  return Status::ok();
}

Status Trainer::choose_device() {
  const int local_rank = fabric_.bootstrap().job().local_rank;
  if (options_.device.is_gpu) {
    method_.gpu = options_.device.number.value_or(0);
    method_.piece_elements = kGpuPieceElements;
    DUNLIN_TRY(training::check(method_, team_.size()));  // before a GPU is looked for
  }
  if (!team_.is_worker()) return Status::ok();
  DUNLIN_ASSIGN(device_, Device::open(options_.device, local_rank));
  method_.gpu = device_->gpu();
  return Status::ok();
}

Status Trainer::make_network(Architecture architecture) {
  if (!team_.is_worker()) return Status::ok();
  if (device_->gpu()) {
    DUNLIN_ASSIGN(network_,
                  make_gpu_network(std::move(architecture), device_->driver(), *device_->gpu()));
  } else {
    const int threads = threads_of(options_, fabric_.bootstrap().job());
    DUNLIN_ASSIGN(network_, make_torch_network(std::move(architecture), threads));
  }
  return Status::ok();
}

// The settings that a run and the run that it resumes have to have in common.
std::string Trainer::settings() const {
  return fmt::format(
      "{} of {} parameters and {} statistics, batches of {}, seed {}, images {}{}, "
      "{}, momentum {}, weight decay {}",
      cnn::to_string(options_.model), parameters_, statistics_, options_.batch_size, options_.seed,
      dunlin::to_string(data_.digest), options_.is_augmented ? " (augmented)" : "",
      training::to_string(method_.kind), method_.sgd.momentum, method_.sgd.weight_decay);
}

Status Trainer::agree_on_run() {
  const MemberDeath death =
      survives_deaths(method_) ? MemberDeath::kIsNoMatter : MemberDeath::kIsAnError;
  DUNLIN_TRY(
      agree(fabric_, "cnn/terms", members_.ranks(), terms_of_start(), death, kLongestPreparation));
  const Bytes own = ByteWriter().number(new_run()).take();
  DUNLIN_ASSIGN(const Bytes told, team_.broadcast("run", own, kLongestPreparation));
  DUNLIN_ASSIGN(run_, told_number<std::uint64_t>(told, "run"));
  return Status::ok();
}

// How long ranks wait for one another. Rank 0 decides, after a trial iteration.
Result<Duration> Trainer::find_timeout() {
  Duration timeout{};
  if (team_.is_worker()) {
    DUNLIN_ASSIGN(const Duration iteration, time_of_an_iteration());
    double factor = 1;
    for (const training::SlowdownRule& rule : options_.slowdowns) factor += rule.factor;
    double evaluation = 0;  // in iterations
    if (options_.evaluate_every > 0) {
      evaluation =
          static_cast<double>(examiner_.count()) / static_cast<double>(options_.batch_size);
    }
    const std::chrono::duration<double> one = iteration;
    auto wait = one * (kTimeoutFactor * (factor + evaluation));
    // A rank that has finished waits for the slowest worker to finish.
    if (ends_alone(method_)) {
      auto course = one * (2 * factor * static_cast<double>(planned_));
      if (options_.duration_s) {
        // The duration does not include rank 0's evaluations.
        const double pauses = evaluation > 0 ? evaluation / options_.evaluate_every : 0;
        const std::chrono::duration<double> asked(*options_.duration_s);
        course = std::min(course, asked * (kDurations * (1 + pauses)));
      }
      wait += course;
    }
    timeout = std::chrono::duration_cast<Duration>(std::min(wait, kLongestTimeout));
  }
  timeout = std::max(timeout, fabric_.config().deadline);
  if (options_.deadline_s) {
    timeout =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*options_.deadline_s));
  }
  if (members_.is_newcomer()) return timeout;  // until the members tell theirs
  const Bytes own = ByteWriter().number(static_cast<std::int64_t>(timeout.count())).take();
  DUNLIN_ASSIGN(const Bytes told, team_.broadcast("timeout", own, kLongestPreparation));
  DUNLIN_ASSIGN(const auto agreed, told_number<std::int64_t>(told, "timeout"));
  if (agreed > 0) return Duration(agreed);
  return Status(Code::kCorrupted, fmt::format("a peer's timeout is {} ns", agreed));
}

// Runs one iteration as a trial, in memory of its own. The network also initializes itself then.
Result<Duration> Trainer::time_of_an_iteration() {
  std::vector<float> initial(parameters_);
  initialize(network_->architecture(), options_.seed, initial);
  DUNLIN_ASSIGN(const auto parameters, device_->allocate(parameters_));
  DUNLIN_ASSIGN(const auto gradient, device_->allocate(parameters_));
  DUNLIN_TRY(device_->write(parameters.elements(), initial));
  DUNLIN_TRY(network_->bind(parameters.elements(), gradient.elements()));
  const TimePoint before = fabric_.clock().now();
  const auto judgment =
      network_->train(feed_->at(0), [](std::size_t, std::size_t) { return Status::ok(); });
  DUNLIN_TRY(judgment.status());
  const Duration taken = fabric_.clock().now() - before;
  DUNLIN_TRY(device_->write(network_->statistics(), initial_statistics(network_->architecture())));
  return taken;
}

Status Trainer::start() {
  DUNLIN_TRY(make_synchronizer());
  if (sync_->is_server()) return Status::ok();
  if (found_) {
    DUNLIN_TRY(go_on_from(*found_));
  } else {
    std::vector<float> initial(parameters_);
    initialize(network_->architecture(), options_.seed, initial);
    DUNLIN_TRY(device_->write(sync_->parameters(), initial));
  }
  has_model_ = true;
  if (!team_.is_first()) return Status::ok();
  if (members_.is_elastic()) {
    DUNLIN_TRY(sync_->call([this](transport::Fabric&) { return members_.post_terms(terms()); }));
  }
  return tell_beginning();
}

// For the members of this epoch.
Status Trainer::make_synchronizer() {
  training::MethodOptions method = method_;
  if (members_.is_elastic() || members_.epoch() > 0) {
    method.members = members_.ranks();
    method.name += fmt::format("/{}", members_.epoch());
  }
  DUNLIN_ASSIGN(sync_, training::Synchronizer::create(fabric_, method, timeout_));
  return sync_->is_server() ? Status::ok() : network_->bind(sync_->parameters(), sync_->gradient());
}

Status Trainer::tell_beginning() {
  const training::MethodOptions& method = method_;
  DUNLIN_TRY(output_.event("config", {{"model", cnn::to_string(options_.model)},
                                      {"parameters", parameters_},
                                      {"batch_norm", statistics_ > 0},
                                      {"device", device_->name()},
                                      {"data", data_.source},
                                      {"images", data_.total},
                                      {"classes", data_.classes},
                                      {"ranks", team_.size()},
                                      {"workers", team_.workers()},
                                      {"batch_size", options_.batch_size},
                                      {"iterations", planned_},
                                      {"first_iteration", first_},
                                      {"learning_rate", options_.learning_rate},
                                      {"decay", options_.decay},
                                      {"momentum", method.sgd.momentum},
                                      {"weight_decay", method.sgd.weight_decay},
                                      {"seed", options_.seed},
                                      {"method", training::to_string(method.kind)},
                                      {"section_length", method.section_length},
                                      {"graph", method.graph},
                                      {"sync", collective::to_string(method.sync)},
                                      {"groups", collective::to_string(method.groups)},
                                      {"group_size", method.generator.group_size}}));
  return output_.say(
      fmt::format("{} with {} parameters on {}; {} images of {} classes; {} workers, {}{}",
                  cnn::to_string(options_.model), parameters_, device_->name(), data_.total,
                  data_.classes, team_.workers(), training::to_string(method.kind),
                  first_ > 0 ? fmt::format("; goes on after iteration {}", first_) : ""));
}

}  // namespace dunlin::cnn
