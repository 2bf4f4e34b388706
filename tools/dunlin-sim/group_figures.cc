#include "tools/dunlin-sim/group_figures.h"

#include <fmt/format.h>

namespace dunlin::simulate {
namespace {

// Without slowdown (the text of sections 7.3 and 7.4), and, overall, with one of 2 (7.4).
struct PaperBar {
  GroupMethod method;
  PaperSpeedup alike;
  double slowed_twice;
};
constexpr PaperBar kPaperBars[] = {
    {GroupMethod::kAllReduce, {std::nullopt, 4.27}, 1.66},
    {GroupMethod::kAdPsgd, {1.18, 1.42}, 1.37},
    {GroupMethod::kStatic, {std::nullopt, 5.01}, 2.47},
    {GroupMethod::kRandom, {std::nullopt, 3.03}, 2.13},
    {GroupMethod::kSmart, {5.10, 5.26}, 4.23},
};

std::optional<PaperSpeedup> paper_bar(const GroupSetting& setting, const Slowdown& slowdown,
                                      GroupMethod method) {
  if (setting.layout != collective::WorkerLayout{4, 4} || slowdown.is_random) return std::nullopt;
  for (const PaperBar& bar : kPaperBars) {
    if (bar.method != method) continue;
    if (slowdown.factor == 0) return bar.alike;
    if (slowdown.factor == 2) return PaperSpeedup{std::nullopt, bar.slowed_twice};
  }
  return std::nullopt;
}

std::string describe(const PaperSpeedup& paper) {
  if (paper.per_iteration) return fmt::format("{:.2f}", *paper.per_iteration);
  return fmt::format("{:.2f} overall", paper.overall);
}

std::string describe(const Slowdown& slowdown) {
  if (slowdown.factor == 0) return "all alike";
  return fmt::format("{} slowed {:g}x", slowdown.is_random ? "random ones" : "one worker",
                     slowdown.factor);
}

}  // namespace

Result<std::vector<GroupPoint>> make_group_figures(const GroupSetting& setting,
                                                   const std::vector<double>& factors) {
  std::vector<Slowdown> slowdowns{{}};
  for (const bool is_random : {false, true}) {
    for (const double factor : factors) slowdowns.push_back({factor, is_random});
  }
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
      points.push_back(point);
    }
    for (std::size_t i = first; i < points.size(); ++i)
      points[i].over_all_reduce = points[i].iterations_per_s / all_reduce;
  }
  return points;
}

std::string to_text(const std::vector<GroupPoint>& points) {
  std::string text = fmt::format("  {:<22} {:<17} {:>13} {:>9} {:>11}  {}\n", "slowdown", "method",
                                 "iterations/s", "over PS", "over all-r.", "paper");
  for (const GroupPoint& point : points) {
    text += fmt::format("  {:<22} {:<17} {:>13.1f} {:>9.2f} {:>11.2f}", describe(point.slowdown),
                        to_string(point.method), point.iterations_per_s,
                        point.over_parameter_server, point.over_all_reduce);
    if (point.paper) text += "  " + describe(*point.paper);
    text += '\n';
  }
  return text +
         "  slowed Fx: each iteration sleeps F computations more, F + 1 in all\n"
         "  over PS: the parameter server with all alike; paper: the same per iteration, or "
         "overall,"
         "\n  which counts iterations until a loss is reached as well\n";
}

std::vector<nlohmann::ordered_json> to_json(const std::vector<GroupPoint>& points) {
  std::vector<nlohmann::ordered_json> rows;
  for (const GroupPoint& point : points) {
    nlohmann::ordered_json row;
    // The paper has none on random ones.
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
      row["paper_overall"] = point.paper->overall;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace dunlin::simulate
