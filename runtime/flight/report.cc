#include "runtime/flight/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/flight/folder.h"
#include "runtime/flight/recorder.h"
#include "runtime/log.h"
#include "runtime/units.h"

namespace dunlin::flight {
namespace {

constexpr std::size_t kMostNamed = 6;
constexpr double kNotableRatio = 1.2;
constexpr double kNotableShare = 0.005;

double seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

// "rank 3", "ranks 3, 5 and 9", "ranks 0, 1, 2, 3, 4, 5 and 58 others".
std::string names_of(const std::vector<Rank>& ranks) {
  const std::size_t named = ranks.size() <= kMostNamed + 1 ? ranks.size() : kMostNamed;
  const std::size_t others = ranks.size() - named;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == named && others == 0;
    if (i > 0) text += is_last ? " and " : ", ";
    text += std::to_string(ranks[i].value());
  }
  if (others > 0) text += fmt::format(" and {} others", others);
  return text;
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

// "; its steps take 3.0 times the median (30 ms, median 10 ms)", or nothing.
std::string step_clause(const Straggler& straggler) {
  if (!straggler.own_step || !straggler.median_step) return "";
  const double own = seconds(*straggler.own_step);
  const double median = seconds(*straggler.median_step);
  if (median <= 0 || own < kNotableRatio * median) return "";
  return fmt::format("; its steps take {:.1f} times the median ({}, median {})", own / median,
                     format_seconds(own), format_seconds(median));
}

// " in step 17, while it waited for rank 3 in all-reduce": where a rank ended.
std::string last_place(const Snapshot& now) {
  std::string text = now.step_began ? fmt::format(" in step {}", now.step) : "";
  if (now.awaited != Rank())
    text +=
        fmt::format("{} while it waited for rank {}", text.empty() ? "" : ",", now.awaited.value());
  if (!now.operation.empty())
    text +=
        fmt::format("{} in {}", text.empty() || now.awaited != Rank() ? "" : ",", now.operation);
  return text;
}

}  // namespace

std::string sentence(const Straggler& straggler, const JobView& job) {
  const RankView* const view = job.find(straggler.rank);
  std::string text =
      fmt::format("rank {} is {}", straggler.rank.value(), to_string(straggler.trouble));
  if (view != nullptr && straggler.trouble == Trouble::kDead) {
    text += fmt::format(": its process {} has ended{}", view->now.pid, last_place(view->now));
  } else if (view != nullptr && straggler.trouble == Trouble::kStopped) {
    text += fmt::format(": its process {} was stopped by a signal", view->now.pid);
  } else if (view != nullptr && straggler.trouble == Trouble::kStuck) {
    text += fmt::format(": for {}, it has done nothing that Dunlin sees, and waits for nobody",
                        format_seconds(seconds(straggler.idle)));
  }
  if (!straggler.waiters.empty()) {
    text += fmt::format(
        "{} {} {} for it {} of {} time", straggler.trouble == Trouble::kSlow ? ":" : ";",
        names_of(straggler.waiters), straggler.waiters.size() == 1 ? "waits" : "wait",
        percent(straggler.lost_share), straggler.waiters.size() == 1 ? "its" : "their");
  }
  if (straggler.trouble == Trouble::kSlow) text += step_clause(straggler);
  return text;
}

std::string report(const JobView& job) {
  Duration longest{};
  Duration waited{};
  Duration elapsed{};
  for (const RankView& view : job.ranks) {
    longest = std::max(longest, view.period);
    elapsed += view.period;
    waited += Duration(
        static_cast<Duration::rep>(view.wait_share * static_cast<double>(view.period.count())));
  }
  const double share = elapsed > Duration::zero() ? seconds(waited) / seconds(elapsed) : 0;
  std::string text =
      fmt::format("{} of {} ranks, {}: on average, a rank waited for others {} of the time\n",
                  job.ranks.size(), job.size, format_seconds(seconds(longest)),
                  share < kNotableShare ? "less than 1 %" : percent(share));
  for (const Straggler& each : job.stragglers) {
    if (each.trouble == Trouble::kSlow) {
      text += fmt::format("rank {} was waited for {} of the time, by {}{}\n", each.rank.value(),
                          percent(each.lost_share), names_of(each.waiters), step_clause(each));
    } else {
      text += sentence(each, job) + "\n";
    }
  }
  if (job.stragglers.empty()) text += "no rank held up the others\n";
  for (const RankView& view : job.ranks) {
    if (view.now.error.empty()) continue;
    text += fmt::format("rank {} {}: {}\n", view.now.rank.value(),
                        view.now.has_failed() ? "failed" : "met an error", view.now.error);
  }
  return text;
}

void report_deadline(Recorder& recorder, const Status& error) {
  recorder.fail(error);
  if (!may_report(recorder.folder())) {
    DUNLIN_WARN("another rank of this host reports on all of them");
    return;
  }
  std::string text = report_on(recorder.folder());
  text.pop_back();  // the log ends the line
  DUNLIN_WARN("the ranks of this host when the deadline passed:\n{}", text);
}

std::string report_on(const std::string& folder) {
  std::vector<std::string> problems;
  const std::vector<Snapshot> now = read_folder(folder, &problems);
  std::string text;
  if (now.empty()) text = fmt::format("there are no flight records in {}\n", folder);
  for (const std::string& problem : problems) text += problem + "\n";
  return now.empty() ? text : report(view_of({}, now)) + text;
}

}  // namespace dunlin::flight
