#include "tools/dunlin-sim/groups/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/groups/policy.h"
#include "tools/dunlin-sim/network/units.h"
#include "tools/dunlin-sim/own_options.h"

namespace dunlin::simulate {
namespace {

constexpr const char* kLearning = "Learning";
constexpr const char* kSweeps = "Several runs";
constexpr const char* kCalibrated = "calibrated";
// Larger simulations would take days.
constexpr int kMostSimulated = 1 << 14;
constexpr std::uint64_t kMany = std::uint64_t{1} << 32;

// With many workers, averages need fewer iterations of each worker. The number must suffice for the
// slowest worker to make some.
std::uint64_t usual_iterations(int workers) {
  constexpr std::uint64_t kUsual = 300, kLeast = 60, kWorkers = 64;
  return std::clamp(kUsual * kWorkers / static_cast<std::uint64_t>(workers), kLeast, kUsual);
}

bool is_finite(double value) {
  return std::isfinite(value);
}

}  // namespace

void GroupsOptions::set_defaults(Scenario& scenario) const {
  scenario.network.ranks = setting_.layout.workers();
  scenario.network.ranks_per_host = setting_.layout.workers_per_host;
  scenario.network.rack = setting_.between;
  scenario.network.host = setting_.within;
  scenario.network.shares_nic = true;
  scenario.compute = setting_.compute;
  scenario.steps = setting_.iterations;
}

void GroupsOptions::declare(CLI::App& app) {
  app_ = &app;
  declare_methods(app);
  declare_learning(app);
  declare_sweeps(app);
}

void GroupsOptions::declare_methods(CLI::App& app) {
  add_size(app, "--size", "SIZE", "bytes of the model", setting_.model_bytes,
           {1, std::size_t{1} << 50})
      ->default_str("9230000");
  app.add_option("--slowdowns", factors_,
                 "a slow worker sleeps this many times its computation in addition")
      ->delimiter(',')
      ->check(CLI::Range(0.001, 1e6))
      ->default_str("2,5")
      ->group(kOwnOptions);
  app.add_option("--slow-worker", setting_.slow_worker, "rank of the slow worker")
      ->type_name("RANK")
      ->capture_default_str()
      ->group(kOwnOptions);
  app.add_option("--compute-spread", setting_.compute_spread,
                 "share by which computations are shorter or longer, at random")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(kOwnOptions);
  app.add_option("--group-size", setting_.group_size, "ranks of random and smart groups")
      ->capture_default_str()
      ->group(kOwnOptions);
  app.add_option("--slowdown-threshold", setting_.slowdown_threshold,
                 "C_thres of smart groups, in iterations")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->capture_default_str()
      ->group(kOwnOptions);
  app.add_option("--most-alone", setting_.most_alone,
                 "smart groups: times in a row that a worker continues alone because no other is "
                 "free; 0: never, as in the paper")
      ->check(CLI::Range(std::uint32_t{0}, std::uint32_t{1} << 20))
      ->capture_default_str()
      ->group(kOwnOptions);
  app.add_flag("!--no-intra-filter", setting_.intra_filter,
               "smart groups: do not apply the slowdown filter inside hosts, as in the paper")
      ->group(kOwnOptions);
  app.add_option("--local-section-length", setting_.local_section_length,
                 "local SGD: iterations between two averages")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->capture_default_str()
      ->group(kOwnOptions);
  app.add_option("--section-length", setting_.section_length,
                 "AD-PSGD and groups: iterations between two averages")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->capture_default_str()
      ->group(kOwnOptions);
  add_parsed(app, "--message-time", "TIME", "time of a message to or from the group generator",
             parse_duration, setting_.message)
      ->default_str("50us");
}

void GroupsOptions::declare_learning(CLI::App& app) {
  app.add_flag("--learn", has_learning_,
               "workers train a small network meanwhile, until a loss is reached")
      ->group(kLearning);
  app.add_option("--target-loss", learning_.target_loss, "the loss to reach")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str()
      ->group(kLearning);
  app.add_option("--learning-rate", learning_.learning_rate, "rate of stochastic gradient descent")
      ->check(CLI::Range(1e-9, 1e6))
      ->capture_default_str()
      ->group(kLearning);
  app.add_option("--batch", learning_.batch, "examples of a worker in an iteration")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->type_name("N")
      ->capture_default_str()
      ->group(kLearning);
  app.add_option("--most-iterations", learning_.most_iterations,
                 "average over the workers; a method that needs more does not reach the loss")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->capture_default_str()
      ->group(kLearning);
  app.add_option("--look-every", learning_.look_every,
                 "iterations between two evaluations of the loss")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->capture_default_str()
      ->group(kLearning);
  app.add_flag("--judge-worker", learning_.judges_worker,
               "take the loss of worker 0's model instead of that of the mean of all models")
      ->group(kLearning);
}

void GroupsOptions::declare_sweeps(CLI::App& app) {
  app.add_option_function<std::vector<std::string>>(
         "--compute-times",
         [this](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             if (text == kCalibrated) {
               compute_times_.emplace_back();
               continue;
             }
             const auto time = parse_duration(text);
             if (!time)
               throw CLI::ValidationError("--compute-times", std::string(time.status().message()));
             compute_times_.emplace_back(*time);
           }
         },
         "times of a computation, instead of --compute, with a table for each; 'calibrated' is "
         "the time that makes all-reduce --calibrate-to times as fast as the parameter server. "
         "Other tables are made with the calibrated time if there is one, otherwise with the first")
      ->delimiter(',')
      ->type_name("TIME")
      ->group(kSweeps);
  app.add_option("--calibrate-to", calibrated_ratio_, "target of 'calibrated'; the paper has 4.27")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str()
      ->group(kSweeps);
  app.add_option("--scale", scale_, "numbers of workers: one more table, with all methods")
      ->delimiter(',')
      ->check(CLI::Range(2, kMostSimulated))
      ->group(kSweeps);
  app.add_option("--section-lengths", section_lengths_,
                 "figure 16: iterations to the loss by section length; needs --learn")
      ->delimiter(',')
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->group(kSweeps);
}

Status GroupsOptions::check(const Scenario& scenario) const {
  DUNLIN_TRY(check_usage());
  DUNLIN_TRY(check_numbers());
  DUNLIN_TRY(check_cluster(scenario, scenario.network.ranks));
  for (const int workers : scale_) DUNLIN_TRY(check_cluster(scenario, workers));
  return Status::ok();
}

Status GroupsOptions::check_usage() const {
  // The model has no such features. Ignoring the options would simulate something else.
  for (const char* const name :
       {"--hosts-per-rack", "--spine-latency", "--spine-bandwidth", "--oversubscription",
        "--overhead", "--jitter", "--queue-depth", "--straggler", "--kill", "--loss-notice",
        "--hostile", "--no-check", "--most-events"}) {
    if (app_->count(name) > 0)
      return {Code::kInvalidArgument, fmt::format("groups: its model has no {}", name)};
  }
  for (const char* const name : {"--target-loss", "--learning-rate", "--batch", "--most-iterations",
                                 "--look-every", "--judge-worker", "--section-lengths"}) {
    if (!has_learning_ && app_->count(name) > 0)
      return {Code::kInvalidArgument, fmt::format("groups: {} needs --learn", name)};
  }
  const bool is_calibrated =
      std::find(compute_times_.begin(), compute_times_.end(), std::nullopt) != compute_times_.end();
  if (!is_calibrated && app_->count("--calibrate-to") > 0)
    return {Code::kInvalidArgument, "groups: --calibrate-to needs --compute-times calibrated"};
  if (!compute_times_.empty() && app_->count("--compute") > 0)
    return {Code::kInvalidArgument, "groups: --compute or --compute-times, not both"};
  return Status::ok();
}

Status GroupsOptions::check_numbers() const {
  if (!std::all_of(factors_.begin(), factors_.end(), is_finite))
    return {Code::kInvalidArgument, "groups: --slowdowns must be numbers"};
  if (!is_finite(setting_.compute_spread) || !is_finite(setting_.model_bytes))
    return {Code::kInvalidArgument, "groups: --compute-spread and --size must be numbers"};
  if (!is_finite(learning_.target_loss) || !is_finite(learning_.learning_rate) ||
      !is_finite(calibrated_ratio_))
    return {Code::kInvalidArgument,
            "groups: --target-loss, --learning-rate and --calibrate-to must be numbers"};
  if (learning_.look_every > learning_.most_iterations)
    return {Code::kInvalidArgument,
            fmt::format("groups: --look-every {} exceeds --most-iterations {}",
                        learning_.look_every, learning_.most_iterations)};
  return Status::ok();
}

Status GroupsOptions::check_cluster(const Scenario& scenario, int workers) const {
  const int per_host = scenario.network.ranks_per_host;
  if (workers % per_host != 0)
    return {Code::kInvalidArgument,
            fmt::format("groups: {} ranks do not fill hosts of {}", workers, per_host)};
  if (workers < 2 || setting_.slow_worker < 0 || setting_.slow_worker >= workers)
    return {
        Code::kInvalidArgument,
        fmt::format("groups: --slow-worker {} of {} workers: there must be two workers or more, "
                    "and this must be one of them",
                    setting_.slow_worker, workers)};
  const GroupSetting made = setting(scenario, workers);
  collective::GroupOptions options;
  options.layout = made.layout;
  options.group_size = made.group_size;
  options.slowdown_threshold = made.slowdown_threshold;
  return collective::check(options);
}

nlohmann::ordered_json GroupsOptions::to_json() const {
  nlohmann::ordered_json json{{"size", setting_.model_bytes},
                              {"slow_worker", setting_.slow_worker},
                              {"compute_spread", setting_.compute_spread},
                              {"group_size", setting_.group_size},
                              {"slowdown_threshold", setting_.slowdown_threshold},
                              {"most_alone", setting_.most_alone},
                              {"intra_filter", setting_.intra_filter},
                              {"local_section_length", setting_.local_section_length},
                              {"section_length", setting_.section_length},
                              {"message_us", to_seconds(setting_.message) * 1e6}};
  if (has_learning_)
    json.update({{"target_loss", learning_.target_loss},
                 {"learning_rate", learning_.learning_rate},
                 {"batch", learning_.batch},
                 {"judged", learning_.judges_worker ? "worker 0" : "mean"}});
  return json;
}

GroupSetting GroupsOptions::setting(const Scenario& scenario, int workers) const {
  if (workers == 0) workers = scenario.network.ranks;
  GroupSetting setting = setting_;
  setting.layout.workers_per_host = scenario.network.ranks_per_host;
  setting.layout.hosts = workers / scenario.network.ranks_per_host;
  setting.between = scenario.network.rack;
  setting.within = scenario.network.host;
  setting.compute = scenario.compute;
  setting.iterations = app_->count("--steps") > 0 ? scenario.steps : usual_iterations(workers);
  setting.seed = scenario.network.seed;
  return setting;
}

std::optional<LearningOptions> GroupsOptions::learning() const {
  return has_learning_ ? std::optional(learning_) : std::nullopt;
}

std::vector<std::optional<Duration>> GroupsOptions::compute_times(const Scenario& scenario) const {
  if (!compute_times_.empty()) return compute_times_;
  return {scenario.compute};
}

}  // namespace dunlin::simulate
