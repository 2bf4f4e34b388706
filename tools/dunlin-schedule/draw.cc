#include "tools/dunlin-schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "tools/dunlin-schedule/drawn_steps.h"
#include "tools/lib/xml.h"

namespace dunlin::collective {
namespace {

// Lengths in pixels.
constexpr double kLeft = 64;  // names of ranks
constexpr double kRight = 24;
constexpr double kTop = 58;  // title, axis
constexpr double kPlotWidth = 1120;
constexpr double kBar = 9;      // height of a put
constexpr double kBox = 17;     // height of a reduce
constexpr double kLeast = 1;    // width of a step that takes no time
constexpr double kArrow = 5;    // length of the head of an arrow
constexpr double kEntry = 172;  // width of an entry of the legend
constexpr std::size_t kMostEntries = 18;

// Colors that are visible on white and on black.
constexpr std::string_view kStyle = R"(<style>
svg { background: #fff; color: #24292f }
text { font: 11px sans-serif; fill: currentColor }
.title { font-size: 15px }
.rank { text-anchor: end }
.tick { text-anchor: middle; fill: #7d8590 }
.grid { stroke: #7d8590; stroke-opacity: 0.25 }
.wait { stroke: #7d8590; stroke-dasharray: 1.5 2.5; stroke-width: 1.5 }
.signal { stroke: #7d8590; fill: #7d8590; stroke-dasharray: 4 3 }
.drain { stroke: #7d8590; stroke-width: 2 }
.arrow { stroke-width: 1.2; fill: none }
.reduce { stroke: currentColor; stroke-width: 0.8 }
.critical { stroke: currentColor; stroke-width: 8; stroke-opacity: 0.25; fill: none }
.on rect { stroke: currentColor; stroke-width: 2 }
@media (prefers-color-scheme: dark) { svg { background: #16191d; color: #d7dce1 } }
</style>
)";

// Colors around the color wheel, with the same saturation and lightness.
std::string color(std::size_t index, std::size_t of) {
  constexpr double kChroma = 0.52;
  constexpr double kDark = 0.24;
  const double hue = 6.0 * static_cast<double>(index) / static_cast<double>(of);
  const auto channel = [&](double shift) {
    const double at = std::fmod(hue + shift, 6.0);
    const double share = std::clamp(std::abs(at - 3.0) - 1.0, 0.0, 1.0);
    return static_cast<int>(std::lround(255 * (kDark + kChroma * share)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(4), channel(2));
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.4g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} us", seconds * 1e6);
}

// Returns 1, 2 or 5 times a power of ten, so that about eight of them make the whole.
double tick_of(double whole) {
  const double about = whole / 8;
  const double power = std::pow(10, std::floor(std::log10(about)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (power * step >= about) return power * step;
  }
  return power * 10;
}

class Picture {
 public:
  Picture(std::string_view title, std::size_t ranks, const CostReport& report,
          std::span<const DrawnStep> steps)
      : title_(title),
        ranks_(ranks),
        row_(ranks <= 16 ? 40.0 : 26.0),
        seconds_(report.seconds),
        steps_(steps),
        out_(std::back_inserter(text_)) {
    for (const DrawnStep& step : steps) {
      if (step.has_bytes && step.elements.count > 0) chunks_.insert(step.elements.begin);
    }
  }

  std::string draw() {
    const double bottom = kTop + static_cast<double>(ranks_) * row_;
    const double width = kLeft + kPlotWidth + kRight;
    const double height = bottom + 40 + 18 * static_cast<double>(legend_rows());
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\">\n{2}"
        "<text class=\"title\" x=\"10\" y=\"22\">{3}: {4}</text>\n",
        width, height, kStyle, escape_xml(title_), time_text(seconds_));
    axis(bottom);
    critical_path();
    // Steps are drawn in the order of the programs, so boxes of later ranks lie over arrows of
    // earlier ones.
    for (const DrawnStep& step : steps_) {
      out_ = fmt::format_to(out_, "<g data-step=\"{}:{}\"{}><title>{} ({} to {})</title>",
                            step.id.rank, step.id.index, step.is_critical ? " class=\"on\"" : "",
                            step.text, time_text(step.begin), time_text(step.end));
      draw_step(step);
      text_ += "</g>\n";
    }
    legend(bottom + 30);
    return std::move(text_) + "</svg>\n";
  }

 private:
  double x(double seconds) const {
    return kLeft + (seconds_ > 0 ? seconds / seconds_ * kPlotWidth : 0.0);
  }
  double y(int rank) const { return kTop + (static_cast<double>(rank) + 0.5) * row_; }
  std::string color_of(std::size_t element) const {
    const auto found = chunks_.find(element);
    const auto index = static_cast<std::size_t>(std::distance(chunks_.begin(), found));
    return color(index, chunks_.size() + 1);
  }
  std::string color_of(const DrawnStep& step) const {
    return step.elements.count > 0 ? color_of(step.elements.begin) : "#7d8590";
  }

  void axis(double bottom) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const double at = y(static_cast<int>(rank));
      out_ = fmt::format_to(
          out_,
          "<text class=\"rank\" x=\"{:.0f}\" y=\"{:.1f}\">rank {}</text>"
          "<line class=\"grid\" x1=\"{:.0f}\" y1=\"{:.1f}\" x2=\"{:.0f}\" y2=\"{:.1f}\"/>\n",
          kLeft - 8, at + 4, rank, kLeft, at, kLeft + kPlotWidth, at);
    }
    if (seconds_ <= 0) return;
    const double tick = tick_of(seconds_);
    for (int i = 0; i * tick <= seconds_ * (1 + 1e-9); ++i) {
      out_ = fmt::format_to(
          out_,
          "<text class=\"tick\" x=\"{0:.1f}\" y=\"{1:.0f}\">{2}</text>"
          "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{3:.0f}\" x2=\"{0:.1f}\" y2=\"{4:.1f}\"/>\n",
          x(i * tick), kTop - 12, time_text(i * tick), kTop - 6, bottom);
    }
  }

  void critical_path() {
    std::vector<const DrawnStep*> path;
    for (const DrawnStep& step : steps_) {
      if (step.is_critical) path.push_back(&step);
    }
    // A wait on the path waited for its message, so the line comes from the sender.
    text_ += "<g class=\"critical\">\n";
    for (const DrawnStep* const step : path) {
      double from = step->begin;
      int rank = step->id.rank;
      if (step->kind == StepKind::kWait && step->end > step->begin) {
        const auto is_sender = [&](const DrawnStep* other) {
          return other->id.rank == step->message.rank && other->id.index == step->message.index;
        };
        const auto sender = std::ranges::find_if(path, is_sender);
        if (sender != path.end()) {
          from = (*sender)->end;
          rank = (*sender)->id.rank;
        }
      }
      out_ = fmt::format_to(out_, "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n", x(from), y(rank),
                            x(step->end), y(step->id.rank));
    }
    text_ += "</g>\n";
  }

  void rectangle(const DrawnStep& step, double height, const char* name) {
    out_ = fmt::format_to(
        out_,
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "fill=\"{}\"/>",
        name, x(step.begin), y(step.id.rank) - height / 2,
        std::max(kLeast, x(step.end) - x(step.begin)), height, color_of(step));
  }

  // From the time when the last byte leaves to the time when it arrives.
  void arrow(const DrawnStep& step, const char* name, const std::string& stroke) {
    const double x1 = x(step.end);
    const double y1 = y(step.id.rank);
    const double x2 = std::min(x(step.arrival), kLeft + kPlotWidth);
    const double y2 = y(step.peer);
    const double length = std::max(1e-9, std::hypot(x2 - x1, y2 - y1));
    const double along_x = (x2 - x1) / length * kArrow;
    const double along_y = (y2 - y1) / length * kArrow;
    out_ = fmt::format_to(
        out_,
        "<path class=\"{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"{}/>"
        "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}z\" fill=\"{}\"/>",
        name, x1, y1, x2, y2, stroke.empty() ? "" : fmt::format(" stroke=\"{}\"", stroke), x2, y2,
        x2 - along_x - along_y / 2, y2 - along_y + along_x / 2, x2 - along_x + along_y / 2,
        y2 - along_y - along_x / 2, stroke.empty() ? "#7d8590" : stroke);
  }

  void draw_step(const DrawnStep& step) {
    const double at = y(step.id.rank);
    switch (step.kind) {
      case StepKind::kPut:
        arrow(step, "arrow", color_of(step));
        rectangle(step, kBar, "put");
        break;
      case StepKind::kReduce:
        rectangle(step, kBox, "reduce");
        break;
      case StepKind::kSignal:
        arrow(step, "signal", "");
        break;
      case StepKind::kWait:
        out_ = fmt::format_to(
            out_, "<line class=\"wait\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
            x(step.begin), at, x(step.end), at);
        break;
      case StepKind::kDrain:
        out_ = fmt::format_to(
            out_,
            "<line class=\"drain\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>",
            x(step.begin), at - kBar / 2, at + kBar / 2);
        break;
    }
  }

  static std::size_t entries_per_row() { return static_cast<std::size_t>(kPlotWidth / kEntry); }
  std::size_t legend_rows() const {
    const std::size_t shown = std::min(chunks_.size(), kMostEntries + 1);
    return 1 + (shown + entries_per_row() - 1) / entries_per_row();
  }

  void legend(double top) {
    out_ = fmt::format_to(out_,
                          "<text x=\"{0:.0f}\" y=\"{1:.0f}\">bar: put, with an arrow to where it "
                          "arrives; box: reduce; "
                          "dotted: wait; dashed: signal; tick: drain; shaded and outlined: the "
                          "critical path</text>\n",
                          kLeft, top);
    std::size_t i = 0;
    for (auto chunk = chunks_.begin(); chunk != chunks_.end(); ++chunk, ++i) {
      const double at_x = kLeft + static_cast<double>(i % entries_per_row()) * kEntry;
      const double at_y = top + 18 * (1 + static_cast<double>(i / entries_per_row()));
      if (i == kMostEntries) {
        out_ = fmt::format_to(out_, "<text x=\"{:.0f}\" y=\"{:.0f}\">and {} more</text>\n", at_x,
                              at_y, chunks_.size() - i);
        break;
      }
      out_ =
          fmt::format_to(out_,
                         "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"12\" height=\"10\" fill=\"{}\"/>"
                         "<text x=\"{:.0f}\" y=\"{:.0f}\">from element {}</text>\n",
                         at_x, at_y - 9, color_of(*chunk), at_x + 17, at_y, *chunk);
    }
  }

  std::string_view title_;
  std::size_t ranks_;
  double row_;
  double seconds_;
  std::span<const DrawnStep> steps_;
  std::set<std::size_t> chunks_;  // the first elements of what is moved
  std::string text_;
  std::back_insert_iterator<std::string> out_;
};

}  // namespace

Result<std::string> draw_svg(std::string_view title, std::span<const Program> programs,
                             const CostReport& report, const CostModel& model) {
  std::size_t count = 0;
  for (const Program& program : programs) count += program.steps.size();
  if (programs.size() > kMostDrawnRanks || count > kMostDrawnSteps) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} ranks and {} steps are too many to draw; at most {} and {} stay "
                              "legible",
                              programs.size(), count, kMostDrawnRanks, kMostDrawnSteps));
  }
  DUNLIN_ASSIGN(const std::vector<DrawnStep> steps, drawn_steps(programs, report, model));
  return Picture(title, programs.size(), report, steps).draw();
}

}  // namespace dunlin::collective
