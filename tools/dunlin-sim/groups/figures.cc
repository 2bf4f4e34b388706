#include "tools/dunlin-sim/groups/figures.h"

#include <fmt/format.h>

namespace dunlin::simulate {
namespace {

// Figures without slowdown (from the text of sections 7.3 and 7.4), and overall with a slowdown of
// 2 (7.4).
struct PaperBar {
  GroupMethod method;
  PaperSpeedup alike;
  double slowed_twice;
};
constexpr PaperBar kPaperBars[] = {
    {GroupMethod::kAllReduce, {std::nullopt, 4.27, std::nullopt}, 1.66},
    {GroupMethod::kAdPsgd, {1.18, 1.42, 0.78}, 1.37},
    {GroupMethod::kStatic, {std::nullopt, 5.01, std::nullopt}, 2.47},
    {GroupMethod::kRandom, {std::nullopt, 3.03, std::nullopt}, 2.13},
    {GroupMethod::kSmart, {5.10, 5.26, 0.96}, 4.23},
};

std::optional<PaperSpeedup> paper_bar(const GroupSetting& setting, const Slowdown& slowdown,
                                      GroupMethod method) {
  if (setting.layout != collective::WorkerLayout{4, 4} || slowdown.is_random) return std::nullopt;
  for (const PaperBar& bar : kPaperBars) {
    if (bar.method != method) continue;
    if (slowdown.factor == 0) return bar.alike;
    if (slowdown.factor == 2) return PaperSpeedup{std::nullopt, bar.slowed_twice, std::nullopt};
  }
  return std::nullopt;
}

std::string describe(const PaperSpeedup& paper) {
  std::string text;
  if (paper.per_iteration) text += fmt::format("{:.2f} per iteration, ", *paper.per_iteration);
  if (paper.iterations) text += fmt::format("{:.2f} of the iterations, ", *paper.iterations);
  return text + fmt::format("{:.2f} overall", paper.overall);
}

std::optional<double> iterations_of(const GroupPoint& point) {
  if (!point.learning || !point.learning->target) return std::nullopt;
  return point.learning->target->iterations;
}

std::optional<double> seconds_of(const GroupPoint& point) {
  if (!point.learning || !point.learning->target) return std::nullopt;
  return point.learning->target->seconds;
}

// Relates a point to the first one, which is the parameter server without slowdown.
Status compare_learning(std::vector<GroupPoint>& points, const LearningOptions& options) {
  const auto server_iterations = iterations_of(points.front());
  const auto server_seconds = seconds_of(points.front());
  if (!server_iterations) {
    return {Code::kInvalidArgument,
            fmt::format("the parameter server doesn't reach a loss of {:g} within {} iterations, "
                        "but {:.4f}: another target, learning rate or more iterations are needed",
                        options.target_loss, options.most_iterations,
                        points.front().learning->curve.back().loss)};
  }
  for (GroupPoint& point : points) {
    if (!iterations_of(point)) continue;
    // A target that is reached from the start takes no time.
    const auto over = [](double value, double base) { return base > 0 ? value / base : 1; };
    point.iterations_over_server = over(*iterations_of(point), *server_iterations);
    point.overall_speedup = over(*server_seconds, *seconds_of(point));
  }
  return Status::ok();
}

nlohmann::ordered_json to_json(const LearningRun& run) {
  auto curve = nlohmann::ordered_json::array();
  for (const LearningMoment& moment : run.curve)
    curve.push_back({moment.iterations, moment.seconds, moment.loss});
  return curve;
}

}  // namespace

Result<std::vector<GroupPoint>> compare_methods(const GroupSetting& setting,
                                                const std::vector<Slowdown>& slowdowns,
                                                const std::optional<LearningOptions>& learning) {
  std::optional<LearningProblem> problem;
  if (learning) problem.emplace(setting.seed);
  std::vector<GroupPoint> points;
  double server = 0;
  for (const Slowdown& slowdown : slowdowns) {
    double all_reduce = 0;
    const std::size_t first = points.size();
    for (const GroupMethod method : kGroupMethods) {
      GroupPoint point;
      point.slowdown = slowdown;
      point.method = method;
      DUNLIN_ASSIGN(point.iterations_per_s, measure_method(setting, method, slowdown));
      if (points.empty()) server = point.iterations_per_s;
      if (method == GroupMethod::kAllReduce) all_reduce = point.iterations_per_s;
      point.over_parameter_server = point.iterations_per_s / server;
      point.paper = paper_bar(setting, slowdown, method);
      if (learning) {
        DUNLIN_ASSIGN(point.learning, learn_method(setting, method, slowdown, *problem, *learning));
      }
      points.push_back(std::move(point));
    }
    for (std::size_t i = first; i < points.size(); ++i)
      points[i].over_all_reduce = points[i].iterations_per_s / all_reduce;
  }
  if (learning) DUNLIN_TRY(compare_learning(points, *learning));
  return points;
}

Result<std::vector<GroupPoint>> make_group_figures(const GroupSetting& setting,
                                                   const std::vector<double>& factors,
                                                   const std::optional<LearningOptions>& learning) {
  std::vector<Slowdown> slowdowns{{}};
  for (const bool is_random : {false, true}) {
    for (const double factor : factors) slowdowns.push_back({factor, is_random});
  }
  return compare_methods(setting, slowdowns, learning);
}

std::string describe(const Slowdown& slowdown) {
  if (slowdown.factor == 0) return "all alike";
  return fmt::format("{} slowed {:g}x", slowdown.is_random ? "random ones" : "one worker",
                     slowdown.factor);
}

std::string describe(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string to_text(const std::vector<GroupPoint>& points) {
  const bool is_learnt = !points.empty() && points.front().learning;
  std::string text = fmt::format("  {:<22} {:<22} {:>12} {:>7} {:>11}", "slowdown", "method",
                                 "iterations/s", "over PS", "over all-r.");
  if (is_learnt)
    text += fmt::format(" {:>10} {:>7} {:>8} {:>7}", "iterations", "of PS's", "time/s", "overall");
  text += "  paper\n";
  for (const GroupPoint& point : points) {
    text += fmt::format("  {:<22} {:<22} {:>12.1f} {:>7.2f} {:>11.2f}", describe(point.slowdown),
                        to_string(point.method), point.iterations_per_s,
                        point.over_parameter_server, point.over_all_reduce);
    if (is_learnt)
      text += fmt::format(" {:>10} {:>7} {:>8} {:>7}", describe(iterations_of(point), 1),
                          describe(point.iterations_over_server, 2), describe(seconds_of(point), 3),
                          describe(point.overall_speedup, 2));
    if (point.paper) text += "  " + describe(*point.paper);
    text += '\n';
  }
  text +=
      "  slowed Fx: each iteration sleeps F computations more, F + 1 in all\n"
      "  PS: the parameter server with all alike; over PS: speed-up per iteration\n";
  if (is_learnt)
    text += "  iterations, time: of a worker, on average, until the loss is reached; -: it isn't\n";
  return text;
}

std::vector<nlohmann::ordered_json> to_json(const std::vector<GroupPoint>& points) {
  std::vector<nlohmann::ordered_json> rows;
  for (const GroupPoint& point : points) {
    nlohmann::ordered_json row;
    // The paper has no figures for random slowdowns.
    if (!point.slowdown.is_random) row["figure"] = point.slowdown.factor == 0 ? "17" : "19";
    row["slowdown"] = point.slowdown.factor;
    row["slowed"] = point.slowdown.factor == 0 ? "none"
                    : point.slowdown.is_random ? "random"
                                               : "one";
    row["method"] = to_string(point.method);
    row["iterations_per_s"] = point.iterations_per_s;
    row["over_parameter_server"] = point.over_parameter_server;
    row["over_all_reduce"] = point.over_all_reduce;
    if (point.paper) {
      if (point.paper->per_iteration) row["paper_per_iteration"] = *point.paper->per_iteration;
      if (point.paper->iterations) row["paper_iterations"] = *point.paper->iterations;
      row["paper_overall"] = point.paper->overall;
    }
    if (point.learning) {
      row["reaches_loss"] = point.overall_speedup.has_value();
      if (point.overall_speedup) {
        row["iterations_to_loss"] = *iterations_of(point);
        row["seconds_to_loss"] = *seconds_of(point);
        row["iterations_over_parameter_server"] = *point.iterations_over_server;
        row["overall_speedup"] = *point.overall_speedup;
      }
      row["curve"] = to_json(*point.learning);  // iterations, seconds, loss
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace dunlin::simulate
