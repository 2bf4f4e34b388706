#include "apps/svm/program/reporter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "runtime/print.h"

namespace dunlin::svm {
namespace {

using Json = nlohmann::ordered_json;

Json describe(const Totals& totals) {
  Json inputs = Json::object();
  for (const auto& [count, reduces] : totals.inputs) inputs[std::to_string(count)] = reduces;
  return {{"exchanges", totals.exchanges}, {"bytes_sent", totals.bytes_sent},
          {"compute_s", totals.compute_s}, {"exchange_s", totals.exchange_s},
          {"wait_s", totals.wait_s},       {"inputs_per_reduce", totals.inputs_per_reduce()},
          {"reduces_by_inputs", inputs},   {"torn_reads", totals.torn},
          {"stale_reads", totals.stale}};
}

}  // namespace

Result<std::unique_ptr<Reporter>> Reporter::create(const Options& options, bool is_continued) {
  std::unique_ptr<Reporter> reporter(new Reporter(options));
  DUNLIN_ASSIGN(reporter->data_, load_evaluation_data(options));
  DUNLIN_TRY(reporter->teller_.open(true, options.output, is_continued));
  return reporter;
}

Status Reporter::start(const RunInfo& info) {
  planned_ = info.exchanges;
  const Json line = {{"workers", info.workers},
                     {"launcher", info.launcher},
                     {"transports", info.transports},
                     {"data", options_.is_generated ? "generated" : options_.train},
                     {"rows", info.total_rows},
                     {"shard_skew", to_string(options_.shard_skew)},
                     {"features", data_.train.features},
                     {"loss", to_string(options_.learner.loss)},
                     {"lambda", options_.learner.lambda},
                     {"eta0", info.eta0},
                     {"average", options_.has_average},
                     {"epochs", options_.epochs},
                     {"graph", options_.graph},
                     {"sync", collective::to_string(options_.sync)},
                     {"sync_every", options_.sync_every},
                     {"depth", options_.depth},
                     {"exchanges", info.exchanges}};
  return teller_.event("config", line);
}

Result<std::optional<double>> Reporter::progress(const Moment& moment,
                                                 std::span<const float> model) {
  if (options_.is_deferred) {
    snapshots_.push_back({moment, {model.begin(), model.end()}});
    return std::optional<double>();
  }
  DUNLIN_TRY(tell(moment, model));
  return std::optional(objective_);
}

Status Reporter::change(double time_s, std::uint64_t exchange, const MembersChange& change) {
  Json line = {{"time_s", time_s}, {"exchange", exchange}};
  change.describe(line);
  if (teller_.is_talkative()) print_error(change.to_text() + "\n");
  return teller_.event("members", line);
}

void Reporter::evaluate_once(std::span<const float> model) const {
  const LearnerOptions& learner = options_.learner;
  (void)evaluate(model, data_.train, learner.loss, learner.lambda);
  if (data_.test) (void)evaluate(model, *data_.test, learner.loss, learner.lambda);
}

Status Reporter::tell(const Moment& moment, std::span<const float> model) {
  const LearnerOptions& learner = options_.learner;
  objective_ = evaluate(model, data_.train, learner.loss, learner.lambda).objective();
  Json line = {{"time_s", moment.time_s},
               {"exchange", moment.exchange},
               {"examples", moment.examples},
               {"objective", objective_}};
  if (data_.test) {
    test_error_ = evaluate(model, *data_.test, learner.loss, learner.lambda).error_rate();
    line["test_error"] = test_error_;
  }
  line.update(describe(moment.totals));
  display(moment);
  return teller_.event("progress", line);
}

void Reporter::display(const Moment& moment) const {
  if (!teller_.is_talkative()) return;
  const std::string test =
      data_.test ? fmt::format("  test error {:6.3f} %", 100 * test_error_) : "";
  const double share =
      planned_ == 0 ? 1 : static_cast<double>(moment.exchange) / static_cast<double>(planned_);
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  print_error(
      fmt::format("{}{:5.1f} %  {:8.3f} s  objective {:.6f}{}  inputs {:.2f}  waited {:.3f} s{}",
                  is_terminal ? "\r" : "", 100 * share, moment.time_s, objective_, test,
                  moment.totals.inputs_per_reduce(), moment.totals.wait_s,
                  is_terminal && share < 1 ? "" : "\n"));
}

Status Reporter::flush() {
  for (const Snapshot& one : snapshots_) DUNLIN_TRY(tell(one.moment, one.model));
  snapshots_.clear();
  return Status::ok();
}

Status Reporter::finish(double time_s, const Totals& own, const Totals& all, std::uint64_t epoch) {
  DUNLIN_TRY(flush());
  Json line = {{"time_s", time_s}, {"objective", objective_}};
  if (data_.test) line["test_error"] = test_error_;
  line["examples"] = all.examples;
  line["examples_per_s"] = time_s > 0 ? static_cast<double>(all.examples) / time_s : 0;
  line["epoch"] = epoch;
  line["own"] = describe(own);
  line["all"] = describe(all);
  return teller_.event("final", line);
}

}  // namespace dunlin::svm
