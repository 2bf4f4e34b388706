#include <fmt/format.h>

#include <iterator>

#include "tools/dunlin-schedule/draw.h"
#include "tools/dunlin-schedule/drawn_steps.h"

namespace dunlin::collective {
namespace {

constexpr double kMicro = 1e6;

// The number of a message, which is the same at both of its ends.
std::string flow(const StepId& sent) {
  return fmt::format(R"("name":"message","cat":"message","id":"{}:{}")", sent.rank, sent.index);
}

}  // namespace

Result<std::string> draw_trace(std::span<const Program> programs, const CostReport& report,
                               const CostModel& model) {
  DUNLIN_ASSIGN(const std::vector<DrawnStep> steps, drawn_steps(programs, report, model));
  std::string text =
      R"({"displayTimeUnit":"ns","otherData":{"dropped":0,"start_us":0},"traceEvents":[)";
  auto out = std::back_inserter(text);
  for (const Program& program : programs) {
    out = fmt::format_to(
        out, R"({}{{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})",
        program.rank == 0 ? "" : ",\n", program.rank, program.rank);
  }
  for (const DrawnStep& step : steps) {
    const auto place = [&](double at) {
      return fmt::format(R"("pid":{},"tid":0,"ts":{:.6f})", step.id.rank, at * kMicro);
    };
    out = fmt::format_to(out,
                         ",\n"
                         R"({{"name":"{}","ph":"X",{},"dur":{:.6f},)"
                         R"("args":{{"step":{},"critical":{},"what":"{}"}}}})",
                         to_string(step.kind), place(step.begin), (step.end - step.begin) * kMicro,
                         step.id.index, step.is_critical, step.text);
    if (step.kind == StepKind::kPut || step.kind == StepKind::kSignal)
      out = fmt::format_to(out, ",\n{{{},\"ph\":\"s\",{}}}", flow(step.id), place(step.begin));
    if (step.kind == StepKind::kWait) {
      out = fmt::format_to(out, ",\n{{{},\"ph\":\"f\",\"bp\":\"e\",{}}}", flow(step.message),
                           place(step.end));
    }
  }
  return text + "]}\n";
}

}  // namespace dunlin::collective
