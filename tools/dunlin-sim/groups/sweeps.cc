#include "tools/dunlin-sim/groups/sweeps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dunlin::simulate {
namespace {

// The methods that average models; of the group generators only the one that the paper recommends.
constexpr GroupMethod kSectionMethods[] = {GroupMethod::kLocalSgd, GroupMethod::kAdPsgd,
                                           GroupMethod::kStatic, GroupMethod::kSmart};

Duration from_seconds(double seconds) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(seconds));
}

Result<double> ratio_at(GroupSetting& setting, Duration compute) {
  setting.compute = compute;
  DUNLIN_ASSIGN(const double server, measure_method(setting, GroupMethod::kParameterServer, {}));
  DUNLIN_ASSIGN(const double reduce, measure_method(setting, GroupMethod::kAllReduce, {}));
  return reduce / server;
}

}  // namespace

Result<Duration> calibrate_compute(GroupSetting setting, double ratio) {
  // Workers differ only by the spread, which a few iterations show.
  setting.iterations = std::min<std::uint64_t>(setting.iterations, 60);
  // The longer workers compute, the less the synchronization matters.
  Duration shortest = std::chrono::microseconds(1);
  Duration longest = std::chrono::seconds(100);
  DUNLIN_ASSIGN(const double largest, ratio_at(setting, shortest));
  DUNLIN_ASSIGN(const double least, ratio_at(setting, longest));
  if (ratio > largest || ratio < least) {
    return Status(Code::kInvalidArgument,
                  fmt::format("no computation lets all-reduce make {:g} times the iterations of "
                              "the parameter server on this cluster: {:.2f} to {:.2f} times",
                              ratio, least, largest));
  }
  while (to_seconds(longest) > 1.0001 * to_seconds(shortest)) {
    const Duration middle = from_seconds(std::sqrt(to_seconds(shortest) * to_seconds(longest)));
    DUNLIN_ASSIGN(const double found, ratio_at(setting, middle));
    (found > ratio ? shortest : longest) = middle;
  }
  return longest;
}

std::string to_text(const std::vector<ScaleBlock>& blocks) {
  if (blocks.empty()) return "";
  const auto row = [&](const auto& first, const auto& second, auto cell) {
    std::string text = fmt::format("  {:<22} {:<22}", first, second);
    for (const ScaleBlock& block : blocks) text += fmt::format(" {:>18}", cell(block));
    return text + '\n';
  };
  const auto table = [&](auto cell) {
    std::string text = row("slowdown", "method",
                           [](const auto& block) { return fmt::format("{}", block.workers); });
    for (std::size_t i = 0; i < blocks.front().points.size(); ++i) {
      const GroupPoint& point = blocks.front().points[i];
      text += row(describe(point.slowdown), to_string(point.method),
                  [&](const auto& block) { return cell(block.points[i]); });
    }
    return text;
  };
  std::string text = "scale: iterations/s by number of workers (over all-reduce)\n";
  text += table([](const GroupPoint& point) {
    return fmt::format("{:.1f} ({:.2f})", point.iterations_per_s, point.over_all_reduce);
  });
  if (!blocks.front().points.front().learning) return text;
  text += "scale: seconds to the loss by number of workers (over the parameter server's)\n";
  return text + table([](const GroupPoint& point) {
           if (!point.overall_speedup) return std::string("-");
           return fmt::format("{:.3f} ({:.2f})", point.learning->target->seconds,
                              *point.overall_speedup);
         });
}

Result<std::vector<SectionPoint>> make_section_figure(GroupSetting setting,
                                                      const std::vector<std::uint64_t>& lengths,
                                                      const LearningOptions& learning) {
  const LearningProblem problem(setting.seed);
  std::vector<SectionPoint> points;
  for (const GroupMethod method : kSectionMethods) {
    for (const std::uint64_t length : lengths) {
      setting.section_length = setting.local_section_length = length;
      DUNLIN_ASSIGN(auto run, learn_method(setting, method, {}, problem, learning));
      points.push_back({method, length, std::move(run)});
    }
  }
  return points;
}

std::string to_text(const std::vector<SectionPoint>& points) {
  std::string text = fmt::format("sections: equal workers\n  {:<22} {:>14} {:>12} {:>10}\n",
                                 "method", "section length", "iterations", "time/s");
  for (const SectionPoint& point : points) {
    const auto& target = point.run.target;
    text += fmt::format("  {:<22} {:>14} {:>12} {:>10}\n", to_string(point.method),
                        point.section_length, target ? describe(target->iterations, 1) : "-",
                        target ? describe(target->seconds, 3) : "-");
  }
  return text;
}

std::vector<nlohmann::ordered_json> to_json(const std::vector<SectionPoint>& points) {
  std::vector<nlohmann::ordered_json> rows;
  for (const SectionPoint& point : points) {
    nlohmann::ordered_json row{{"figure", "16"},
                               {"method", to_string(point.method)},
                               {"section_length", point.section_length},
                               {"reaches_loss", point.run.target.has_value()}};
    if (point.run.target) {
      row["iterations_to_loss"] = point.run.target->iterations;
      row["seconds_to_loss"] = point.run.target->seconds;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace dunlin::simulate
