// ConnectionShare: which connections a process keeps, and which it gives up because there are too
// many.
//
// A process has two shares of DUNLIN_VERBS_MAX_CONNECTIONS queue pairs: one for the connections
// that it has made, and one for those that peers have made to it. `End` is the end of such a
// connection: an Outbound, or an Inbound. When a share has more ends than it should, the least
// recently used ones are asked to leave. An end leaves once nothing is in progress on its
// connection, which may be at once or later, and is made part of the share again when it is needed.
//
// Knows no device, so that tests can run it with ends of their own. Owner thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

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
  void remove(const End& end) { std::erase(ends_, &end); }

  // Asks as many ends to leave as it takes until there is room for `more`.
  void make_room(std::size_t more) {
    auto leaving = static_cast<std::size_t>(
        std::ranges::count_if(ends_, [](const End* end) { return end->is_leaving(); }));
    const auto has_enough = [&] { return ends_.size() + more <= most_ + leaving; };
    if (has_enough()) return;
    std::vector<End*> by_use;
    std::ranges::copy_if(ends_, std::back_inserter(by_use),
                         [](const End* end) { return !end->is_leaving(); });
    std::ranges::sort(by_use, {}, &End::last_use);
    for (End* const end : by_use) {
      if (has_enough()) return;
      if (end->begin_to_leave() && end->is_leaving()) ++leaving;  // otherwise it has left already
    }
  }

 private:
  const std::size_t most_;
  std::uint64_t uses_ = 0;
  std::vector<End*> ends_;
};

}  // namespace dunlin::transport::verbs
