#include "tools/dunlin-top/watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/flight/folder.h"

namespace dunlin::top {

using flight::Phase;
using flight::Snapshot;

void Watch::refresh() {
  std::vector<Snapshot> read = flight::read_folder(folder_, &(problems_ = {}));
  for (auto& [rank, known] : now_) {
    const bool is_there = std::any_of(
        read.begin(), read.end(), [&](const Snapshot& each) { return each.rank == known.rank; });
    if (is_there) continue;
    if (!known.is_over()) known.phase = Phase::kEnded;
    known.awaited = Rank();
    known.operation.clear();
  }
  for (Snapshot& each : read) now_[each.rank] = std::move(each);
  Past past{clock_.now(), {}};
  for (const auto& [rank, known] : now_) past.ranks.push_back(known);
  past_.push_back(std::move(past));
  while (past_.size() > 2 && past_.back().at - past_[1].at >= window_) past_.pop_front();
}

flight::JobView Watch::view(const flight::ViewOptions& options) const {
  if (past_.empty()) return {};
  return flight::view_of(past_.size() > 1 ? past_.front().ranks : std::vector<Snapshot>(),
                         past_.back().ranks, options);
}

bool Watch::is_over() const {
  return !now_.empty() && std::all_of(now_.begin(), now_.end(),
                                      [](const auto& each) { return each.second.is_over(); });
}

bool is_running(const std::string& folder) {
  const std::vector<Snapshot> ranks = flight::read_folder(folder);
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const Snapshot& each) { return !each.is_over(); });
}

Result<std::string> find_job(const std::string& base, const std::string& name, bool is_over) {
  std::string others;
  for (const flight::JobFolder& job : flight::list_jobs(base)) {
    if (!name.empty() ? job.name.starts_with(name) : is_running(job.path) != is_over)
      return job.path;
    others += fmt::format("\n  {} ({} ranks{})", job.name, job.records.size(),
                          is_running(job.path) ? "" : ", has ended");
  }
  const std::string wanted = name.empty()
                                 ? fmt::format("no job that {}", is_over ? "has ended" : "runs")
                                 : fmt::format("no job '{}'", name);
  return Status(Code::kNotFound, fmt::format("there is {} in {}{}{}", wanted, base,
                                             others.empty() ? "" : ", but there are:", others));
}

}  // namespace dunlin::top
