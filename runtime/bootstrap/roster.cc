#include "runtime/bootstrap/roster.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {

Roster::Roster(int size, int founders, Duration heartbeat, Send send)
    : entries_(static_cast<std::size_t>(size)),
      founders_(founders),
      heartbeat_(heartbeat),
      send_(std::move(send)) {
  for (int rank = founders; rank < size; ++rank)
    entries_[Rank(rank).index()].state = PeerState::kAbsent;
}

Status Roster::join(Rank rank, TimePoint now) {
  if (!exists(rank)) {
    return {Code::kOutOfRange,
            fmt::format("rank {} is outside a job of {} ranks", rank.value(), size())};
  }
  Entry& entry = entries_[rank.index()];
  if (entry.has_joined || is_gone(rank)) {
    return {Code::kAlreadyExists, fmt::format("rank {} has joined before and is {}", rank.value(),
                                              to_string(entry.state))};
  }
  entry.has_joined = true;
  entry.last_heard = now;
  ++active_;
  if (entry.state == PeerState::kAbsent) change_state(rank, PeerState::kAlive, "");
  return Status::ok();
}

Result<Rank> Roster::free_rank() const {
  for (int rank = founders_; rank < size(); ++rank) {
    if (state(Rank(rank)) == PeerState::kAbsent) return Rank(rank);
  }
  if (founders_ == size()) {
    return Status(Code::kUnavailable,
                  fmt::format("nothing can join this job, which was started for its {} ranks only "
                              "(dunlin-run --max-ranks, DUNLIN_MAX_RANKS)",
                              size()));
  }
  return Status(Code::kResourceExhausted,
                fmt::format("all {} ranks of this job have been taken, and none is given twice "
                            "(dunlin-run --max-ranks, DUNLIN_MAX_RANKS)",
                            size()));
}

void Roster::remove(Rank rank, PeerState state) {
  Entry& entry = entries_[rank.index()];
  entry.state = state;
  if (entry.has_joined) --active_;
}

bool Roster::hear(Rank rank, TimePoint now) {
  if (!is_present(rank)) return false;
  entries_[rank.index()].last_heard = now;
  if (state(rank) == PeerState::kStalled) change_state(rank, PeerState::kAlive, "heard from again");
  return true;
}

void Roster::find_stalled(TimePoint now, bool was_asleep) {
  for (int value = 0; value < size(); ++value) {
    const Rank rank(value);
    Entry& entry = entries_[rank.index()];
    if (!entry.has_joined || entry.state != PeerState::kAlive) continue;
    if (was_asleep) entry.last_heard = now;
    const Duration silence = now - entry.last_heard;
    if (silence < kStallPeriods * heartbeat_) continue;
    change_state(rank, PeerState::kStalled,
                 fmt::format("no heartbeat for {:.1f} s", to_seconds(silence)));
  }
}

void Roster::broadcast(const Message& notice) {
  for (int value = 0; value < size(); ++value) {
    const Rank to(value);
    if (to != notice.subject && is_reachable(to)) send_(to, notice);
  }
}

void Roster::tell_states(Rank to) {
  if (founders_ == size()) return;
  Message left{.type = MessageType::kNotice, .state = PeerState::kLeft};
  for (int value = 0; value < size(); ++value) {
    const Rank rank(value);
    const PeerState expected = value < founders_ ? PeerState::kAlive : PeerState::kAbsent;
    if (rank == to || state(rank) == expected) continue;
    if (state(rank) == PeerState::kLeft) {
      left.ranks.push_back(rank);
    } else {
      send_(to, {.type = MessageType::kNotice,
                 .state = state(rank),
                 .subject = rank,
                 .text = is_gone(rank) ? "before this rank joined" : ""});
    }
  }
  if (!left.ranks.empty()) send_(to, left);
}

void Roster::change_state(Rank rank, PeerState state, const std::string& reason) {
  entries_[rank.index()].state = state;
  broadcast({.type = MessageType::kNotice, .state = state, .subject = rank, .text = reason});
}

}  // namespace dunlin::bootstrap
