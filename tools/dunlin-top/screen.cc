#include "tools/dunlin-top/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/flight/report.h"
#include "runtime/units.h"

namespace dunlin::top {
namespace {

using flight::EventKind;
using flight::JobView;
using flight::PastEvent;
using flight::Phase;
using flight::RankView;
using flight::Snapshot;
using flight::Straggler;
using flight::Trouble;

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kPlain = "\x1b[0m";
constexpr double kNotableShare = 0.005;
constexpr std::size_t kMostPeersShown = 2;

double seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

const Straggler* straggler_of(const JobView& job, Rank rank) {
  const auto found = std::find_if(job.stragglers.begin(), job.stragglers.end(),
                                  [rank](const Straggler& each) { return each.rank == rank; });
  return found == job.stragglers.end() ? nullptr : &*found;
}

std::string rate(std::uint64_t count, Duration period) {
  if (period <= Duration::zero()) return "-";
  const double value = static_cast<double>(count) / seconds(period);
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}", value);
}

std::string awaited_by(const RankView& rank) {
  std::string text;
  for (std::size_t i = 0; i < rank.waits.size() && i < kMostPeersShown; ++i) {
    const double share = seconds(rank.waits[i].waited) / seconds(rank.period);
    if (rank.period <= Duration::zero() || share < kNotableShare) break;
    text += fmt::format("{}{} ({:.0f} %)", text.empty() ? "" : ", ", rank.waits[i].peer.value(),
                        100 * share);
  }
  return text.empty() ? "-" : text;
}

std::string sent(const RankView& rank) {
  std::string text;
  for (const flight::TransportUse& each : rank.bytes) {
    const std::uint64_t bytes = each.put + each.got;
    if (bytes == 0 || rank.period <= Duration::zero()) continue;
    text += fmt::format("{}{} {}/s", text.empty() ? "" : ", ", each.name,
                        format_bytes(static_cast<double>(bytes) / seconds(rank.period)));
  }
  return text.empty() ? "-" : text;
}

std::string doing(const Snapshot& now) {
  if (now.phase != Phase::kRunning) return "-";
  std::string text = now.operation;
  if (!text.empty() && now.operation_bytes > 0)
    text += fmt::format(" of {}", format_bytes(static_cast<double>(now.operation_bytes)));
  if (now.awaited != Rank()) {
    text += fmt::format("{}has waited {} for {}", text.empty() ? "" : ", ",
                        format_seconds(seconds(now.at - now.awaited_since)), now.awaited.value());
  }
  return text.empty() ? "-" : text;
}

struct Column {
  const char* title;
  bool is_left;
  std::string (*text)(const RankView&, const JobView&);
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"rank", false,
       [](const RankView& rank, const JobView&) { return std::to_string(rank.now.rank.value()); }},
      {"state", true,
       [](const RankView& rank, const JobView& job) { return std::string(state_of(rank, job)); }},
      {"step", false,
       [](const RankView& rank, const JobView&) {
         return rank.now.step_began ? std::to_string(rank.now.step) : std::string("-");
       }},
      {"steps/s", false,
       [](const RankView& rank, const JobView&) {
         return rank.now.step_began ? rate(rank.steps, rank.period) : std::string("-");
       }},
      {"own step", false,
       [](const RankView& rank, const JobView&) {
         return rank.own_step ? format_seconds(seconds(*rank.own_step)) : std::string("-");
       }},
      {"ops/s", false,
       [](const RankView& rank, const JobView&) { return rate(rank.operations, rank.period); }},
      {"waits", false,
       [](const RankView& rank, const JobView&) {
         return fmt::format("{:.0f} %", 100 * rank.wait_share);
       }},
      {"for", true, [](const RankView& rank, const JobView&) { return awaited_by(rank); }},
      {"moves", true, [](const RankView& rank, const JobView&) { return sent(rank); }},
      {"now in", true, [](const RankView& rank, const JobView&) { return doing(rank.now); }},
  };
  return all;
}

// Cuts lines that are too long for the screen.
std::string fitted(const std::string& line, int columns) {
  const auto limit = static_cast<std::size_t>(columns);
  return columns <= 0 || line.size() <= limit ? line : line.substr(0, limit);
}

std::string table(const JobView& job, const std::vector<const RankView*>& ranks,
                  const ScreenSize& size) {
  std::vector<std::vector<std::string>> cells(ranks.size() + 1);
  std::vector<std::size_t> widths;
  for (const Column& column : columns()) {
    cells.front().emplace_back(column.title);
    std::size_t width = cells.front().back().size();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      cells[i + 1].push_back(column.text(*ranks[i], job));
      width = std::max(width, cells[i + 1].back().size());
    }
    widths.push_back(width);
  }
  std::string text;
  for (std::size_t row = 0; row < cells.size(); ++row) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += columns()[i].is_left ? fmt::format("{:<{}}", cells[row][i], widths[i])
                                   : fmt::format("{:>{}}", cells[row][i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    const bool is_marked =
        size.has_colors && row > 0 && straggler_of(job, ranks[row - 1]->now.rank) != nullptr;
    line = fitted(line, size.columns);
    text += is_marked ? fmt::format("{}{}{}\n", kBold, line, kPlain) : line + "\n";
  }
  return text;
}

// Those that matter, by rank.
std::vector<const RankView*> chosen(const JobView& job, std::size_t room) {
  std::vector<const RankView*> all;
  for (const RankView& rank : job.ranks) all.push_back(&rank);
  if (all.size() <= room) return all;
  std::stable_sort(all.begin(), all.end(), [&](const RankView* a, const RankView* b) {
    const bool holds_up_a = straggler_of(job, a->now.rank) != nullptr;
    const bool holds_up_b = straggler_of(job, b->now.rank) != nullptr;
    return holds_up_a != holds_up_b ? holds_up_a : a->wait_share > b->wait_share;
  });
  all.resize(room);
  std::sort(all.begin(), all.end(),
            [](const RankView* a, const RankView* b) { return a->now.rank < b->now.rank; });
  return all;
}

std::string line_of(const PastEvent& event, TimePoint end) {
  std::string text =
      fmt::format("  {:>12} before the end: ", format_seconds(seconds(end - event.ended)));
  const Duration took = std::max(event.ended - event.began, Duration::zero());
  switch (event.kind) {
    case EventKind::kOperation:
      text += fmt::format("{} of {}", event.name, format_bytes(static_cast<double>(event.value)));
      if (event.count > 1) text += fmt::format(", {} times", event.count);
      if (took > Duration::zero()) text += fmt::format(", in {}", format_seconds(seconds(took)));
      break;
    case EventKind::kWait:
      text +=
          fmt::format("waited {} for rank {}", format_seconds(seconds(took)), event.peer.value());
      break;
    case EventKind::kStep:
      text += fmt::format("in step {}", event.value);
      break;
    case EventKind::kError:
    case EventKind::kNone:
      text += "an error";
      if (event.peer != Rank()) text += fmt::format(" that concerns rank {}", event.peer.value());
      break;
  }
  return text + "\n";
}

}  // namespace

const char* state_of(const RankView& rank, const JobView& job) {
  if (const Straggler* const straggler = straggler_of(job, rank.now.rank);
      straggler != nullptr && straggler->trouble != Trouble::kSlow) {
    return to_string(straggler->trouble);
  }
  if (rank.now.phase == Phase::kFailed) return "failed";
  if (rank.now.has_unknown_end()) return "ended, not known how";
  if (rank.now.is_over()) return "has left";
  return rank.now.awaited != Rank() ? "waits" : "computes";
}

std::string screen(const JobView& job, const ScreenSize& size) {
  Duration longest{};
  for (const RankView& rank : job.ranks) longest = std::max(longest, rank.now.elapsed());
  std::string text =
      fitted(fmt::format("job {}: {} on {}, {} of {} ranks here, for {}", job.job, job.program,
                         job.host, job.ranks.size(), job.size, format_seconds(seconds(longest))),
             size.columns) +
      "\n";
  for (const Straggler& each : job.stragglers) text += sentence(each, job) + "\n";
  if (job.stragglers.empty()) text += "no rank holds up the others\n";
  text += "\n";
  // The lines above, the titles, and a line for those that are left out.
  const auto used = static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 2;
  const std::size_t room =
      size.rows <= 0 ? job.ranks.size() : static_cast<std::size_t>(std::max(size.rows - used, 1));
  const std::vector<const RankView*> ranks = chosen(job, room);
  text += table(job, ranks, size);
  if (ranks.size() < job.ranks.size())
    text += fmt::format("and {} others\n", job.ranks.size() - ranks.size());
  return text;
}

std::string post_mortem(const std::vector<PastRank>& ranks, std::size_t events) {
  std::vector<Snapshot> snapshots;
  TimePoint end{};
  for (const PastRank& rank : ranks) {
    snapshots.push_back(rank.snapshot);
    end = std::max(end, rank.snapshot.at);
  }
  const JobView job = flight::view_of({}, snapshots);
  std::string text = fmt::format("job {}: {} on {}\n", job.job, job.program, job.host);
  text += report(job) + "\n";
  std::vector<const RankView*> all;
  for (const RankView& rank : job.ranks) all.push_back(&rank);
  text += table(job, all, {});
  for (const PastRank& rank : ranks) {
    if (events == 0) continue;
    text += fmt::format("\nrank {}:\n", rank.snapshot.rank.value());
    for (std::size_t i = rank.events.size() - std::min(events, rank.events.size());
         i < rank.events.size(); ++i) {
      text += line_of(rank.events[i], end);
    }
    if (rank.snapshot.awaited != Rank()) {
      text += fmt::format("  at the end: it had waited {} for rank {}\n",
                          format_seconds(seconds(rank.snapshot.at - rank.snapshot.awaited_since)),
                          rank.snapshot.awaited.value());
    }
  }
  return text;
}

}  // namespace dunlin::top
