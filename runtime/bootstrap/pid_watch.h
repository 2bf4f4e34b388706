// PidWatch: notices that a local peer's process has ended, through pidfds.
//
// Owned by the bootstrap's monitor thread and used by it only. A process that ends may have said
// good-bye a moment before, so an end becomes a death only after a short grace.
#pragma once

#include <poll.h>

#include <vector>

#include "runtime/clock.h"
#include "runtime/fd.h"
#include "runtime/peers.h"

namespace dunlin::bootstrap {

class PidWatch {
 public:
  // Watches the peers of `self` whose process ids `peers` knows. `peers` outlives this.
  PidWatch(PeerTable& peers, Rank self);

  // Takes up process ids that the table has learnt, and lets go of peers that are gone.
  void refresh();
  // Appends what poll() should look at.
  void append_to(std::vector<pollfd>& entries) const;
  // Looks at what poll() saw in the entries that append_to() added.
  void note(const pollfd* entries, TimePoint now);
  // Marks those dead whose grace is over.
  void settle(TimePoint now);
  // When settle() has something to do; `otherwise` if there is nothing.
  TimePoint next(TimePoint otherwise) const;

 private:
  struct Watch {
    Rank rank;
    pid_t pid = 0;
    Fd fd;
    bool has_ended = false;
    TimePoint dead_at{};
  };
  void watch(Rank rank, pid_t pid);

  PeerTable& peers_;
  Rank self_;
  std::vector<Watch> watches_;
  std::vector<pid_t> known_;  // by rank: the process id taken up last
};

}  // namespace dunlin::bootstrap
