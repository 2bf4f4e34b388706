// Witness: tells the coordinator about the processes of ranks on this host whose connections have
// ended. It belongs to the bootstrap's monitor thread.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <vector>

#include "runtime/bootstrap/process_id.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class Witness {
 public:
  explicit Witness(std::function<void(const Message&)> send) : send_(std::move(send)) {}

  // Takes a kInquire: tells whether the process lives, and tells again when it ends. Does not
  // answer if the process cannot be watched from here.
  void take(const Message& inquiry);

  // Appends an entry for poll() for each watched process, and reads the results from them.
  void append_to(std::vector<pollfd>& entries) const;
  void note(const pollfd* entries);

  // Tells, unasked, that a rank's process has ended.
  void report_end(Rank about) { tell(about, PeerState::kDead); }

 private:
  void tell(Rank about, PeerState state);

  std::function<void(const Message&)> send_;
  std::map<Rank, Fd> watched_;
};

}  // namespace dunlin::bootstrap
