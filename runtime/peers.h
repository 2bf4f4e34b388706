// PeerTable: the state of every rank of the job, as far as this process knows.
//
// Two kinds of code write it. The monitor thread of the bootstrap learns from pidfds that a local
// process has ended, and from the coordinator about all other ranks. A transport learns that a
// connection is broken. Every wait reads it: a state is one relaxed load, and version() changes
// with every change of any state, so that a wait loop checks one word. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/fd.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin {

enum class PeerState : std::uint8_t {
  // Present:
  kAlive,
  kStalled,  // has sent no heartbeat for too long (stopped, swapped out, stuck host)
  // Not there yet:
  kAbsent,  // no process has taken this rank so far; one may join later
  // Gone:
  kLeft,  // has left the job; it completes nothing that it still owes
  kDead,  // its process or its connection ended, and it had not left the job
};
const char* to_string(PeerState state);

class PeerTable {
 public:
  // Ranks from `founders` on are absent at first. Negative: none are.
  explicit PeerTable(int size, int founders = -1);
  int size() const { return static_cast<int>(peers_.size()); }

  PeerState state(Rank rank) const {
    return peers_[rank.index()].state.load(std::memory_order_relaxed);
  }
  bool is_present(Rank rank) const { return state(rank) < PeerState::kAbsent; }
  bool is_anybody_gone() const { return gone_.load(std::memory_order_relaxed) > 0; }
  // The state and its reason: "dead: process 4711 ended (SIGKILL?)".
  std::string describe(Rank rank) const;
  // ok while the peer is present; kPeerDead with the reason when it is gone, and kUnavailable while
  // it is absent. Both name the peer.
  Status check(Rank rank) const { return is_present(rank) ? Status::ok() : report(rank); }
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

  // Changes a state. kLeft and kDead are final: later changes are ignored.
  void mark(Rank rank, PeerState state, std::string reason);
  // Marks ranks as kLeft, and calls the listeners once.
  void mark_left(std::span<const Rank> ranks);

  // The process id of a peer on this host, in the same pid namespace; 0: not known. diagnose()
  // reads its state, and the bootstrap's monitor thread watches the process.
  void set_local_pid(Rank rank, pid_t pid);
  pid_t local_pid(Rank rank) const;
  // The same for a peer on this host whose process has no id here, because it is in another PID
  // namespace. local_pid() is then kForeignPid. `pidfd` is readable when the process has ended.
  void set_foreign_process(Rank rank, Fd pidfd);
  static constexpr pid_t kForeignPid = -1;
  // A duplicate of that descriptor; closed if there is none.
  Fd foreign_process(Rank rank) const;
  // Changes with every call of set_local_pid() and set_foreign_process().
  std::uint64_t pids_version() const { return pids_version_.load(std::memory_order_acquire); }
  // The text for an error about a peer that did not answer: "process 4711 is stopped (state T)", or
  // "" when nothing is known of the process. Reads /proc, so it is for error paths only.
  std::string diagnose(Rank rank) const;

  // Whether the process of a local peer has ended; false when its process is not known.
  bool has_ended(Rank rank) const;

  // The listener is called after each change of states or of a process id, on the thread that made
  // the change. It serves to wake sleeping threads. It must be short, must take no lock that a
  // caller of mark() may hold, and must not call mark(), add_listener() or remove_listener().
  // Returns a number for remove_listener(). When that returns, the listener is not running and is
  // not called again.
  int add_listener(std::function<void()> listener);
  void remove_listener(int number);

 private:
  // Small, as a job may have many thousand ranks.
  struct Peer {
    std::atomic<PeerState> state{PeerState::kAlive};
    std::atomic<pid_t> pid{0};
  };
  static_assert(sizeof(Peer) == 8);
  // Returns false if nothing changes. mutex_ is held.
  bool change(Rank rank, PeerState state);
  void notify();
  // Why a rank is not present.
  Status report(Rank rank) const;
  bool has_foreign_ended(Rank rank) const;

  std::vector<Peer> peers_;
  std::atomic<int> gone_{0};
  std::atomic<std::uint64_t> version_{0};
  std::atomic<std::uint64_t> pids_version_{0};
  mutable std::mutex mutex_;
  std::map<Rank, std::string> reasons_;  // under mutex_
  std::map<Rank, Fd> foreign_;           // under mutex_: pidfds of peers in other PID namespaces
  std::mutex listeners_mutex_;           // held while listeners run
  std::vector<std::pair<int, std::function<void()>>> listeners_;
  int next_listener_ = 0;
};

}  // namespace dunlin
