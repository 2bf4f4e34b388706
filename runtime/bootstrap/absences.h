// Absences decides whether, and when, a rank is dead after its connection or its process has ended.
//
// The README's table says what counts as a death. The coordinator reports what it sees, asks for
// the verdicts that are due, and declares those ranks dead. The class has no sockets, threads or
// clock. One thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"

namespace dunlin::bootstrap {

// How a connection has ended.
enum class ConnectionEnd : std::uint8_t {
  kClosed,  // with a FIN: the kernel at its other end has closed the socket
  kBroken,  // in any other way
};

class Absences {
 public:
  // `grace`: how long a rank may be without a connection.
  explicit Absences(Duration grace) : grace_(grace) {}

  // The rank has no connection any more.
  void begin(Rank rank, ConnectionEnd how, TimePoint now);
  // The rank is back, or needs no verdict any more: it has left or is dead.
  void end(Rank rank);
  bool is_absent(Rank rank) const;

  // The coordinator can see the process of the rank, and will hear of its end. Such a rank is dead
  // only when its process has ended.
  void note_visible(Rank rank) { at(rank).is_visible = true; }
  // A neighbor on the rank's host says that the process lives. So a FIN does not mean that it has
  // ended, and the rank gets the whole grace period.
  void note_alive(Rank rank) { at(rank).is_alive = true; }
  // The coordinator has not run for `gap`. The ranks could not come back meanwhile, so that time
  // does not count, and all that are absent have at least kConfirmTime from now on.
  void pass_over(Duration gap, TimePoint now);
  bool has_any() const;
  // The ranks without a connection, ascending.
  std::vector<Rank> absent() const;
  // The process has ended.
  void note_ended(Rank rank, std::string how, TimePoint now);
  // Forgets all about a rank.
  void forget(Rank rank);

  struct Verdict {
    Rank rank;
    std::string reason;
  };
  // Returns the ranks that are dead by now, and forgets them.
  std::vector<Verdict> take_due(TimePoint now);
  // When take_due() has to be called next, or `otherwise`, whichever is earlier.
  TimePoint next(TimePoint otherwise) const;

 private:
  struct State {
    std::optional<TimePoint> since;  // without a connection
    ConnectionEnd how = ConnectionEnd::kBroken;
    bool is_visible = false;
    bool is_alive = false;
    std::optional<TimePoint> ended;
    std::string how_ended;
  };
  State& at(Rank rank) { return ranks_[rank]; }
  // When the rank is dead; TimePoint::max(): no such time.
  TimePoint due(const State& state) const;
  // How long the rank may be absent.
  Duration limit_of(const State& state) const;
  std::string reason(const State& state, TimePoint now) const;

  const Duration grace_;
  std::map<Rank, State> ranks_;  // the ranks about which something is known
  std::set<Rank> concerned_;     // those of them that are absent or have ended
};

}  // namespace dunlin::bootstrap
