// ConnectionShare: which connections a process keeps, and which it gives up because there are too
// many.
//
// A process has two shares of DUNLIN_VERBS_MAX_CONNECTIONS queue pairs: one for the connections
// that it has made, and one for those that peers have made to it. `End` is the end of such a
// connection: an Outbound, or an Inbound. When a share has more ends than it should, the least
// recently used ones are asked to leave. An end leaves once nothing is in progress on its
// connection, which may be at once or later, and is made part of the share again when it is needed.
// One that stays for longer than kLeaveTimeout is busy, and another is asked in its place.
//
// Knows no device, so that tests can run it with ends of their own. Owner thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/clock.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {

// `End` has three functions. begin_to_leave() asks it to leave, and returns false, without an
// effect, if it cannot do so soon. is_leaving() says whether it was asked and has not left yet.
// last_use() is what next_use() returned when it was last used.
template <typename End>
class ConnectionShare {
 public:
  explicit ConnectionShare(std::size_t most) : most_(std::max<std::size_t>(most, 1)) {}

  std::uint64_t next_use() { return ++uses_; }

  std::size_t most() const { return most_; }
  const std::vector<End*>& ends() const { return ends_; }
  bool has_room() const { return ends_.size() < most_; }
  // Adds an end, even beyond the share's size. It must not be part of the share yet.
  void add(End& end) { ends_.push_back(&end); }
  // Removes an end, if it is part of the share.
  void remove(const End& end) {
    std::erase(ends_, &end);
    leaving_since_.erase(&end);
  }

  // Asks as many ends to leave as it takes until there is room for `more`.
  void make_room(std::size_t more, TimePoint now) {
    std::size_t leaving = count_leaving(now);
    ask(now, leaving, [&] { return ends_.size() + more <= most_ + leaving; });
  }
  // Asks one end to leave unless one is leaving, whatever the share's size.
  void ask_one(TimePoint now) {
    const std::size_t before = ends_.size();
    std::size_t leaving = count_leaving(now);
    ask(now, leaving, [&] { return leaving != 0 || ends_.size() != before; });
  }

 private:
  // The number of ends that will leave soon.
  std::size_t count_leaving(TimePoint now) {
    std::size_t leaving = 0;
    for (const End* const end : ends_) {
      if (!end->is_leaving()) {
        leaving_since_.erase(end);
      } else if (now - leaving_since_.try_emplace(end, now).first->second <= kLeaveTimeout) {
        ++leaving;
      }
    }
    return leaving;
  }

  template <typename HasEnough>
  void ask(TimePoint now, std::size_t& leaving, HasEnough&& has_enough) {
    if (has_enough()) return;
    std::vector<End*> by_use;
    std::ranges::copy_if(ends_, std::back_inserter(by_use),
                         [](const End* end) { return !end->is_leaving(); });
    std::ranges::sort(by_use, {}, &End::last_use);
    for (End* const end : by_use) {
      if (has_enough()) return;
      // It may have left already.
      if (!end->begin_to_leave() || !end->is_leaving()) continue;
      leaving_since_[end] = now;
      ++leaving;
    }
  }

  const std::size_t most_;
  std::uint64_t uses_ = 0;
  std::vector<End*> ends_;
  std::unordered_map<const End*, TimePoint> leaving_since_;
};

}  // namespace dunlin::transport::verbs
