#include "runtime/bootstrap/absences.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {

void Absences::begin(Rank rank, ConnectionEnd how, TimePoint now) {
  State& state = at(rank);
  state.since = now;
  state.how = how;
  state.is_alive = false;
  concerned_.insert(rank);
}

void Absences::end(Rank rank) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  found->second.since.reset();
  found->second.is_alive = false;
  if (!found->second.ended) concerned_.erase(rank);
}

bool Absences::is_absent(Rank rank) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && found->second.since.has_value();
}

void Absences::pass_over(Duration gap, TimePoint now) {
  for (const Rank rank : concerned_) {
    State& state = at(rank);
    if (!state.since) continue;
    const Duration limit = limit_of(state);
    const TimePoint latest_end = now - limit + std::min(kConfirmTime, limit);
    state.since = std::min(now, std::max(*state.since + gap, latest_end));
  }
}

bool Absences::has_any() const {
  return std::ranges::any_of(concerned_, [this](Rank rank) { return is_absent(rank); });
}

std::vector<Rank> Absences::absent() const {
  std::vector<Rank> result;
  std::ranges::copy_if(concerned_, std::back_inserter(result),
                       [this](Rank rank) { return is_absent(rank); });
  return result;
}

void Absences::note_ended(Rank rank, std::string how, TimePoint now) {
  State& state = at(rank);
  if (state.ended) return;
  state.ended = now;
  state.how_ended = std::move(how);
  concerned_.insert(rank);
}

void Absences::forget(Rank rank) {
  ranks_.erase(rank);
  concerned_.erase(rank);
}

TimePoint Absences::due(const State& state) const {
  // Its last messages, among them that it leaves, may still be on their way.
  if (state.ended) return *state.ended + kLeaveGrace;
  if (!state.since || state.is_visible) return TimePoint::max();
  return *state.since + limit_of(state);
}

Duration Absences::limit_of(const State& state) const {
  const bool is_closed = state.how == ConnectionEnd::kClosed && !state.is_alive;
  return is_closed ? std::min(kConfirmTime, grace_) : grace_;
}

std::string Absences::reason(const State& state, TimePoint now) const {
  if (state.ended) return state.how_ended;
  if (state.how == ConnectionEnd::kClosed && !state.is_alive)
    return "its connection ended before it left the job";
  return fmt::format("it has had no connection for {:.1f} s", to_seconds(now - *state.since));
}

std::vector<Absences::Verdict> Absences::take_due(TimePoint now) {
  std::vector<Verdict> verdicts;
  for (const Rank rank : concerned_) {
    const State& state = at(rank);
    if (due(state) <= now) verdicts.push_back({rank, reason(state, now)});
  }
  for (const Verdict& each : verdicts) forget(each.rank);
  return verdicts;
}

TimePoint Absences::next(TimePoint otherwise) const {
  for (const Rank rank : concerned_) otherwise = std::min(otherwise, due(ranks_.at(rank)));
  return otherwise;
}

}  // namespace dunlin::bootstrap
