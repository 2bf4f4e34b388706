#include "tools/dunlin-sim/group_figures.h"

#include <fmt/format.h>

namespace dunlin::simulate {
namespace {

// Overall speed-ups that the text of section 7.4 gives: without slowdown, and with one of 2.
struct PaperBar {
  GroupMethod method;
  double alike;
  double slowed_twice;
};
constexpr PaperBar kPaperBars[] = {
    {GroupMethod::kAllReduce, 4.27, 1.66}, {GroupMethod::kAdPsgd, 1.42, 1.37},
    {GroupMethod::kStatic, 5.01, 2.47},    {GroupMethod::kRandom, 3.03, 2.13},
    {GroupMethod::kSmart, 5.26, 4.23},
};

std::optional<double> paper_bar(const Slowdown& slowdown, GroupMethod method) {
  for (const PaperBar& bar : kPaperBars) {
    if (bar.method != method || slowdown.is_random) continue;
    if (slowdown.factor == 0) return bar.alike;
    if (slowdown.factor == 2) return bar.slowed_twice;
  }
  return std::nullopt;
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
      point.paper = paper_bar(slowdown, method);
      points.push_back(point);
    }
    for (std::size_t i = first; i < points.size(); ++i)
      points[i].over_all_reduce = points[i].iterations_per_s / all_reduce;
  }
  return points;
}

std::string to_text(const std::vector<GroupPoint>& points) {
  std::string text = fmt::format("  {:<22} {:<17} {:>13} {:>9} {:>11} {:>8}\n", "slowdown",
                                 "method", "iterations/s", "over PS", "over all-r.", "paper");
  for (const GroupPoint& point : points) {
    const std::string paper = point.paper ? fmt::format("{:.2f}", *point.paper) : "";
    text += fmt::format("  {:<22} {:<17} {:>13.1f} {:>9.2f} {:>11.2f} {:>8}\n",
                        describe(point.slowdown), to_string(point.method), point.iterations_per_s,
                        point.over_parameter_server, point.over_all_reduce, paper);
  }
  return text +
         "  over PS: the parameter server with all alike; paper: its overall speed-up, which "
         "counts\n  iterations until a loss is reached as well\n";
}

std::vector<nlohmann::ordered_json> to_json(const std::vector<GroupPoint>& points) {
  std::vector<nlohmann::ordered_json> rows;
  for (const GroupPoint& point : points) {
    nlohmann::ordered_json row{
        {"figure", point.slowdown.factor == 0 ? "17" : "19"},
        {"slowdown", point.slowdown.factor},
        {"slowed", point.slowdown.factor == 0 ? "none"
                   : point.slowdown.is_random ? "random"
                                              : "one"},
        {"method", to_string(point.method)},
        {"iterations_per_s", point.iterations_per_s},
        {"over_parameter_server", point.over_parameter_server},
        {"over_all_reduce", point.over_all_reduce},
    };
    if (point.paper) row["paper_overall"] = *point.paper;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace dunlin::simulate
