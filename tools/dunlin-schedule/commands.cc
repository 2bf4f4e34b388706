#include "tools/dunlin-schedule/commands.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "collectives/schedule/check.h"
#include "runtime/files/output_file.h"
#include "runtime/units.h"
#include "tools/dunlin-schedule/draw.h"
#include "tools/lib/output.h"
#include "tools/lib/svg_name.h"

namespace dunlin::schedule {
namespace {

using collective::Algorithm;
using collective::Collective;
using nlohmann::ordered_json;

struct Costed {
  const Algorithm* algorithm;
  collective::CostReport report;
  std::optional<double> formula;
};

Result<Costed> predict(const Options& options, const Algorithm& algorithm) {
  DUNLIN_ASSIGN(const auto programs, make_schedule(options, algorithm));
  DUNLIN_ASSIGN(auto report, collective::predict(programs, options.element, options.model()));
  Costed costed{&algorithm, std::move(report), std::nullopt};
  if (const auto seconds = formula(options, algorithm)) costed.formula = *seconds;
  costed.report.times.clear();  // a thousand ranks have many
  return costed;
}

ordered_json to_json(const Costed& costed) {
  const collective::CostReport& report = costed.report;
  ordered_json links = ordered_json::array();
  for (std::size_t i = 0; i < report.links.size(); ++i) {
    links.push_back({{"class", i == 0 ? "within hosts" : "between hosts"},
                     {"puts", report.links[i].puts},
                     {"signals", report.links[i].signals},
                     {"bytes", report.links[i].bytes}});
  }
  ordered_json json{{"algorithm", costed.algorithm->name},
                    {"seconds", report.seconds},
                    {"formula_seconds", nullptr},
                    {"reduced_bytes", report.reduced_bytes},
                    {"critical_steps", report.critical_path.size()},
                    {"links", links}};
  if (costed.formula) json["formula_seconds"] = *costed.formula;
  return json;
}

std::string row(const Costed& costed) {
  const collective::CostReport& report = costed.report;
  std::uint64_t messages = 0;
  for (const collective::LinkUse& use : report.links) messages += use.puts + use.signals;
  std::string formula = "-";
  std::string difference = "-";
  if (costed.formula) {
    formula = format_seconds(*costed.formula);
    const double share = *costed.formula > 0 ? report.seconds / *costed.formula - 1 : 0;
    difference = fmt::format("{:+.2f} %", std::abs(share) < 5e-5 ? 0.0 : 100 * share);
  }
  return fmt::format("{:<20}{:>12}{:>12}{:>10}{:>11}{:>12}{:>12}{:>10}\n", costed.algorithm->name,
                     format_seconds(report.seconds), formula, difference, messages,
                     format_bytes(static_cast<double>(report.links[0].bytes)),
                     format_bytes(static_cast<double>(report.links[1].bytes)),
                     report.critical_path.size());
}

std::string describe(const Options& options, bool with_groups = true) {
  std::string text = fmt::format(
      "{} of {} over {} ranks{}", options.words.collective,
      format_bytes(static_cast<double>(options.bytes)), options.problem.size,
      with_groups ? fmt::format(" in {} groups", options.grouping.groups()) : std::string());
  for (const std::string& each : options.left_out) text += fmt::format("\nleft out: {}", each);
  return text;
}

// Returns the properties that the checker found; an error says what is wrong with the schedule.
Result<std::string> check_one(const Options& options, const Algorithm& algorithm) {
  DUNLIN_ASSIGN(const auto programs, make_schedule(options, algorithm));
  std::string text;
  for (const bool in_place : {false, true}) {
    if (in_place && algorithm.collective == Collective::kAllToAll) continue;
    auto checked = collective::check(options.problem, programs, in_place);
    if (!checked)
      return std::move(checked).status().with_context(in_place ? "in place" : "out of place");
    text = fmt::format("right; {}, {}",
                       checked->is_synchronizing ? "synchronizing" : "not synchronizing",
                       checked->is_polite ? "polite" : "writes to peers' scratch at once");
  }
  return text;
}

}  // namespace

Status list(const Words& words) {
  DUNLIN_ASSIGN(const auto output, tools::Output::open(words.json));
  for (const Algorithm& algorithm : collective::algorithms()) {
    const char* const kind = collective::to_string(algorithm.collective);
    DUNLIN_TRY(output->json({{"collective", kind},
                             {"algorithm", algorithm.name},
                             {"summary", algorithm.summary},
                             {"needs_groups", algorithm.needs_groups},
                             {"needs_mapped_peers", algorithm.needs_mapped_peers},
                             {"is_synchronizing", algorithm.is_synchronizing},
                             {"is_polite", algorithm.is_polite}}));
    DUNLIN_TRY(
        output->text(fmt::format("{:<16}{:<20}{}", kind, algorithm.name, algorithm.summary)));
  }
  return Status::ok();
}

Status check(const Words& words) {
  DUNLIN_ASSIGN(const Options options, resolve(words));
  if (options.problem.size > collective::kMostCheckedRanks) {
    return {Code::kInvalidArgument,
            fmt::format("the checker takes at most {} ranks", collective::kMostCheckedRanks)};
  }
  DUNLIN_ASSIGN(const auto output, tools::Output::open(words.json));
  DUNLIN_TRY(output->text(describe(options)));
  int wrong = 0;
  for (const Algorithm* const algorithm : options.algorithms) {
    const auto verdict = check_one(options, *algorithm);
    if (!verdict && verdict.status().code() == Code::kInvalidArgument) return verdict.status();
    const std::string what =
        verdict ? *verdict : "WRONG: " + std::string(verdict.status().message());
    if (!verdict) ++wrong;
    DUNLIN_TRY(output->json(
        {{"algorithm", algorithm->name}, {"is_right", verdict.is_ok()}, {"verdict", what}}));
    DUNLIN_TRY(output->text(fmt::format("{:<20}{}", algorithm->name, what)));
  }
  if (wrong == 0) return Status::ok();
  return {Code::kCorrupted, fmt::format("{} schedules are wrong", wrong)};
}

Status cost(const Words& words) {
  DUNLIN_ASSIGN(const Options options, resolve(words));
  ordered_json json{
      {"collective", words.collective},        {"ranks", options.problem.size},
      {"groups", options.grouping.groups()},   {"bytes", options.bytes},
      {"alpha_s", options.between.alpha},      {"beta_s_per_byte", options.between.beta},
      {"intra_alpha_s", options.within.alpha}, {"intra_beta_s_per_byte", options.within.beta},
      {"gamma_s_per_byte", options.gamma},     {"algorithms", ordered_json::array()}};
  std::string text = describe(options) + "\n";
  text +=
      fmt::format("{:<20}{:>12}{:>12}{:>10}{:>11}{:>12}{:>12}{:>10}\n", "algorithm", "predicted",
                  "formula", "differs", "messages", "in hosts", "between", "critical");
  for (const Algorithm* const algorithm : options.algorithms) {
    DUNLIN_ASSIGN(const Costed costed, predict(options, *algorithm));
    json["algorithms"].push_back(to_json(costed));
    text += row(costed);
  }
  DUNLIN_ASSIGN(const auto output, tools::Output::open(words.json));
  DUNLIN_TRY(output->text(text));
  return output->json(json);
}

Status draw(const Words& words) {
  if (!words.svg_path.empty()) DUNLIN_TRY(tools::check_svg_name(words.svg_path));
  DUNLIN_ASSIGN(const Options options, resolve(words));
  if (options.algorithms.size() != 1) return {Code::kInvalidArgument, "draw needs --algorithm"};
  if (words.svg_path.empty() && words.trace_path.empty())
    return {Code::kInvalidArgument, "draw needs --svg, --trace or both"};
  const Algorithm& algorithm = *options.algorithms.front();
  DUNLIN_ASSIGN(const auto programs, make_schedule(options, algorithm));
  const collective::CostModel model = options.model();
  DUNLIN_ASSIGN(const auto report, collective::predict(programs, options.element, model));
  if (!words.svg_path.empty()) {
    const std::string title =
        fmt::format("{}, {}", algorithm.name, describe(options, algorithm.needs_groups));
    DUNLIN_ASSIGN(const std::string svg, collective::draw_svg(title, programs, report, model));
    DUNLIN_TRY(replace_file(words.svg_path, svg));
  }
  if (!words.trace_path.empty()) {
    DUNLIN_ASSIGN(const std::string trace, collective::draw_trace(programs, report, model));
    DUNLIN_TRY(replace_file(words.trace_path, trace));
  }
  return Status::ok();
}

}  // namespace dunlin::schedule
