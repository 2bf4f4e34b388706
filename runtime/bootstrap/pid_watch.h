// PidWatch detects through pidfds that the process of a local peer has ended.
//
// Only the bootstrap's monitor thread uses it. A process may leave the job just before it ends, and
// the notice may still be on its way. So the peer is marked dead only after a grace period.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/peers.h"

namespace dunlin::bootstrap {

class PidWatch {
 public:
  // Watches the peers of `self` whose process ids `peers` contains. `peers` must outlive this
  // object. `grace`: how late the notice of the coordinator may be that a peer has left. `tell` is
  // called when a peer was marked dead: a coordinator on another host may not know it, as a child
  // of the peer may keep its connection open.
  PidWatch(PeerTable& peers, Rank self, Duration grace, std::function<void(Rank)> tell);

  // Starts to watch new process ids of the table, and stops watching peers that are gone.
  void refresh();
  // Appends an entry for poll() for each watched process.
  void append_to(std::vector<pollfd>& entries) const;
  // Reads the results of poll() from the entries that append_to() added.
  void note(const pollfd* entries, TimePoint now);
  // Marks the peers dead whose process ended at least the grace period ago.
  void settle(TimePoint now);
  // The time at which settle() must be called, or `otherwise`, whichever is earlier.
  TimePoint next(TimePoint otherwise) const;

 private:
  struct Watch {
    Rank rank;
    pid_t pid = 0;
    Fd fd;
    bool has_ended = false;
    TimePoint dead_at{};
  };
  void take_new();
  void watch(Rank rank, pid_t pid);

  PeerTable& peers_;
  Rank self_;
  Duration grace_;
  std::function<void(Rank)> tell_;
  std::vector<Watch> watches_;
  std::uint64_t seen_ = 0;    // pids_version() of the table
  std::vector<pid_t> known_;  // by rank: the latest process id from the table
};

}  // namespace dunlin::bootstrap
