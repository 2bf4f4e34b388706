// LifeWatch collects what the coordinator can learn about the processes and the connections of the
// ranks.
//
// It watches the processes that the coordinator can see. If the connection of another rank ends, it
// asks other ranks on the same host about that rank's process. Absences decides by all this which
// ranks are dead. A LifeWatch belongs to the coordinator's thread.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/bootstrap/absences.h"
#include "runtime/bootstrap/process_id.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class LifeWatch {
 public:
  using Send = std::function<void(Rank to, const Message& message)>;
  LifeWatch(Duration grace, Send send) : absences_(grace), send_(std::move(send)) {}

  // The rank has joined. Returns a descriptor that is readable when its process has ended, and
  // which this object owns until then; -1 if this process cannot see the rank's.
  int add(Rank rank, const ProcessId& process, TimePoint now);
  // That descriptor; -1: there is none.
  int descriptor(Rank rank) const;
  // The descriptor of the rank is readable. It is closed.
  void note_end(Rank rank, TimePoint now);
  // The rank has left or is dead.
  void remove(Rank rank);
  // The connection of the rank has ended (lose), or the rank has a new one (regain).
  void lose(Rank rank, ConnectionEnd how, TimePoint now);
  void regain(Rank rank);
  // The answer of a rank to kInquire, or what it has seen unasked. Ignored unless it tells of a
  // rank on the same host.
  void testify(Rank from, const Message& message, TimePoint now);

  // These do what the functions of Absences do. The caller then removes the ranks that take_due()
  // returns. If its last call was more than kLongestNap ago while a rank was absent, this process
  // did not run, and that time does not count.
  std::vector<Absences::Verdict> take_due(TimePoint now);
  TimePoint next(TimePoint otherwise) const;

 private:
  struct Life {
    ProcessId process;
    Fd pidfd;                // open while the process is watched
    std::set<Rank> asked{};  // about this rank, since its connection was lost
  };
  void inquire(Rank about, Life& life);
  // Asks about all absent ranks on the host of this process: which ranks can answer has changed.
  void inquire_again(const ProcessId& process);

  Absences absences_;
  Send send_;
  std::map<Rank, Life> lives_;  // of the ranks that have joined and are present
  TimePoint last_look_{};
};

}  // namespace dunlin::bootstrap
