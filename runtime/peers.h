// PeerTable: what this process knows of the life of every rank of its job.
//
// Written by whoever learns something (the bootstrap's monitor thread: end of a local process by
// pidfd, notices and heartbeats through the coordinator; a transport: a broken connection), read by
// every wait. Reading a state is one relaxed load; `version()` changes with every change of any
// state, so that a wait loop needs to look at one word only. Any thread, everywhere.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin {

enum class PeerState : std::uint8_t {
  // Present:
  kAlive,
  kStalled,  // lives, but has been silent for too long (stopped, swapped out, stuck host)
  // Gone:
  kLeft,  // said good-bye: what it still owes will not come
  kDead,  // its process or its connection ended without a good-bye
};
const char* to_string(PeerState state);

class PeerTable {
 public:
  explicit PeerTable(int size);
  int size() const { return static_cast<int>(peers_.size()); }

  PeerState state(Rank rank) const {
    return peers_[rank.index()].state.load(std::memory_order_relaxed);
  }
  // Neither dead nor left.
  bool is_present(Rank rank) const { return state(rank) < PeerState::kLeft; }
  bool is_anybody_gone() const {
    for (int rank = 0; rank < size(); ++rank) {
      if (!is_present(Rank(rank))) return true;
    }
    return false;
  }
  // What is known, in words: "dead: process 4711 ended (SIGKILL?)".
  std::string describe(Rank rank) const;
  // ok while the peer is present; else kPeerDead with the peer and the reason.
  Status check(Rank rank) const { return is_present(rank) ? Status::ok() : report_gone(rank); }
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

  // State changes. The first death stays: a dead or left rank never comes back to life.
  void mark(Rank rank, PeerState state, std::string reason);

  // The process id of a peer of this host (same pid namespace), where it is known: used to say
  // whether a silent peer is stopped, and watched by the bootstrap's monitor. 0: not known.
  void set_local_pid(Rank rank, pid_t pid);
  pid_t local_pid(Rank rank) const;
  // For a report on a peer that did not answer: "process 4711 is stopped (state T)", "process 4711
  // is running", or "" when nothing is known. Reads /proc; for error paths.
  std::string diagnose(Rank rank) const;

  // Called after each change of a state or of a process id, on the thread that made it. It is for
  // waking sleepers: it is short, takes no lock that a caller of mark() may hold, and calls neither
  // mark() nor add_listener() nor remove_listener(). Returns a number for remove_listener(), after
  // whose return the listener isn't running and never will.
  int add_listener(std::function<void(Rank)> listener);
  void remove_listener(int number);

 private:
  struct Peer {
    std::atomic<PeerState> state{PeerState::kAlive};
    std::atomic<pid_t> pid{0};
    std::string reason;  // under mutex_
  };
  void notify(Rank rank);
  Status report_gone(Rank rank) const;

  std::vector<Peer> peers_;
  std::atomic<std::uint64_t> version_{0};
  mutable std::mutex mutex_;
  std::mutex listeners_mutex_;  // held while listeners run
  std::vector<std::pair<int, std::function<void(Rank)>>> listeners_;
  int next_listener_ = 0;
};

}  // namespace dunlin
