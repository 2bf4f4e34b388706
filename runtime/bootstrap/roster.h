// Roster: the states of all ranks of a job, as the coordinator sees them, and the notices of their
// changes. It belongs to a JobLedger.
//
// Ranks 0 to founders - 1 start the job. Those from there to size - 1 are absent at first, and are
// for processes that join the running job. No rank is given twice.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "runtime/bootstrap/wire.h"
#include "runtime/clock.h"
#include "runtime/peers.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

class Roster {
 public:
  using Send = std::function<void(Rank to, const Message& message)>;
  // With a heartbeat of 0, no rank is ever stalled.
  Roster(int size, int founders, Duration heartbeat, Send send);

  int size() const { return static_cast<int>(entries_.size()); }
  int founders() const { return founders_; }
  // The number of ranks that have joined and are neither dead nor have left.
  int active() const { return active_; }

  // A process takes the rank. The error says why it cannot.
  Status join(Rank rank, TimePoint now);
  // A rank that no process has taken so far; or why there is none.
  Result<Rank> free_rank() const;
  // The rank leaves or is dead. The caller tells the others.
  void remove(Rank rank, PeerState state);
  // A message of a rank that is present has come. Returns false if that was heard from a rank that
  // is not present.
  bool hear(Rank rank, TimePoint now);
  // Finds ranks that have sent nothing for too long. `was_asleep`: the coordinator has not run, so
  // their messages may be waiting to be read.
  void find_stalled(TimePoint now, bool was_asleep);

  bool exists(Rank rank) const { return rank.value() >= 0 && rank.value() < size(); }
  PeerState state(Rank rank) const { return entries_[rank.index()].state; }
  bool has_joined(Rank rank) const { return entries_[rank.index()].has_joined; }
  // Neither absent nor gone. A rank that starts the job counts before it has joined, too.
  bool is_present(Rank rank) const { return state(rank) < PeerState::kAbsent; }
  // Whether it has left or is dead; false for ranks that do not exist.
  bool is_gone(Rank rank) const { return exists(rank) && state(rank) > PeerState::kAbsent; }
  // Whether a message can reach it.
  bool is_reachable(Rank rank) const { return has_joined(rank) && is_present(rank); }

  // Sends a notice to all ranks that can be reached, but not to its subject.
  void broadcast(const Message& notice);
  // Tells a rank that has joined what it does not take for given: that the founders are alive, and
  // all others absent.
  void tell_states(Rank to);

 private:
  struct Entry {
    PeerState state = PeerState::kAlive;
    bool has_joined = false;
    TimePoint last_heard{};
  };
  void change_state(Rank rank, PeerState state, const std::string& reason);

  std::vector<Entry> entries_;  // by rank
  const int founders_;
  int active_ = 0;
  const Duration heartbeat_;
  Send send_;
};

}  // namespace dunlin::bootstrap
