// The command push-sum.
#include <fmt/format.h>

#include "apps/consensus/program/runs.h"

namespace dunlin::consensus {
namespace {

// Rounding moves the sums by about 1e-16 per round at most. A part that was lost or counted twice
// would be a visible share of a vector.
constexpr double kMostMassError = 1e-12;

}  // namespace

Result<bool> run_averaging(Setting& setting) {
  const Options& options = setting.options;
  transport::Fabric& fabric = setting.fabric;
  Output& output = setting.output;
  DUNLIN_ASSIGN(const Topology topology,
                Topology::make(options.graph, fabric.size(), Style::kPush));
  if (!topology.is_static()) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("push-sum needs a graph that stays as it is, not '{}'", options.graph));
  }
  DUNLIN_TRY(
      output.event("config", {{"algorithm", name_of(options)},
                              {"ranks", fabric.size()},
                              {"graph", options.graph},
                              {"dimension", options.push_sum.dimension},
                              {"rounds", options.push_sum.rounds},
                              {"longest_pause_s", to_seconds(options.push_sum.longest_pause)},
                              {"seed", options.push_sum.seed}}));
  CommunicatorRanks ranks(setting.communicator);
  DUNLIN_ASSIGN(const PushSumReport report, run_push_sum(fabric, setting.communicator, ranks,
                                                         topology.graph(), options.push_sum));
  DUNLIN_TRY(output.say(fmt::format("push-sum over '{}', {} ranks, {} values each", options.graph,
                                    fabric.size(), options.push_sum.dimension)));
  DUNLIN_TRY(output.history(report.history, "round"));
  const auto rate = fitted_rate(report.history);
  DUNLIN_TRY(output.event("final", {{"error_max", report.error_max},
                                    {"mass_error", report.mass_error},
                                    {"weight_error", report.weight_error},
                                    {"rounds", report.rounds},
                                    {"deposits", report.deposits},
                                    {"rate", rate ? Json(*rate) : Json()}}));
  DUNLIN_TRY(output.say(fmt::format(
      "{} rounds and {} deposits of all ranks; worst error at the end {:.3e}\n"
      "mass kept to {:.1e} (x) and {:.1e} (p)",
      report.rounds, report.deposits, report.error_max, report.mass_error, report.weight_error)));
  if (rate) {
    DUNLIN_TRY(output.say(fmt::format("error per round of a rank: x {:.5f} (fitted)", *rate)));
  }
  if (!(report.mass_error <= kMostMassError && report.weight_error <= kMostMassError)) {
    return Status(Code::kInternal,
                  fmt::format("mass was not conserved: the sums of x and p are off by {:.3e} and "
                              "{:.3e} of what they were",
                              report.mass_error, report.weight_error));
  }
  return judge(setting, report.error_max);
}

}  // namespace dunlin::consensus
