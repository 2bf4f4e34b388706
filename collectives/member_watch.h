// MemberWatch: the blocking edge of a collective that needs all of its members. It waits, and looks
// to the life of every member meanwhile, not just of those that are waited for at the moment: once
// one is dead the group has to be rebuilt. Owner thread only.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective {

class MemberWatch {
 public:
  using Awaited = std::vector<transport::Awaited>;

  // Both outlive it.
  MemberWatch(transport::Fabric& fabric, const std::vector<Rank>& members)
      : fabric_(fabric), members_(members) {}

  // kPeerDead, with what `awaited()` lists, once a member is dead; looks only where something has
  // changed since the last call. `began`: of the wait.
  template <typename Describe>
  Status check(Describe&& awaited, TimePoint began) {
    if (fabric_.peers().version() == seen_) return Status::ok();
    seen_ = fabric_.peers().version();
    const Rank* const dead = find(PeerState::kDead);
    return dead == nullptr ? Status::ok() : report_death(*dead, awaited(), began);
  }

  // Calls `test()` until it isn't busy. Errors as Fabric::wait, with a cause that is known better
  // than by whoever was waited for: a dead or stopped member.
  template <typename Test, typename Describe>
  Status wait(Test&& test, Describe&& awaited, Duration timeout) {
    return wait(test, awaited, timeout, [] { return std::optional<TimePoint>(); });
  }
  // `next_event()`: when test() wants to be called again, whether or not anything has come.
  template <typename Test, typename Describe, typename NextEvent>
  Status wait(Test&& test, Describe&& awaited, Duration timeout, NextEvent&& next_event) {
    const TimePoint began = fabric_.clock().now();
    // Here too, as what never waits would never look.
    DUNLIN_TRY(check(awaited, began));
    const auto step = [&]() -> Status {
      if (Status status = test(); !status.is_busy()) return status;
      Status members = check(awaited, began);
      return members.is_ok() ? Status::busy() : std::move(members);
    };
    Status status;
    for (;;) {
      const TimePoint now = fabric_.clock().now();
      const Duration left = began + timeout - now;
      const std::optional<TimePoint> event = next_event();
      const Duration nap = event ? std::max(*event - now, Duration::zero()) : left;
      status = fabric_.wait(step, awaited, std::min(nap, left));
      if (status.code() != Code::kDeadlineExceeded || nap >= left) break;
    }
    return explain(std::move(status), awaited, began);
  }

 private:
  const Rank* find(PeerState state) const;
  Status report_death(Rank dead, const Awaited& awaited, TimePoint began) const;
  Status name_stalled(Status error) const;

  template <typename Describe>
  Status explain(Status status, Describe&& awaited, TimePoint began) {
    if (status.code() == Code::kPeerDead || status.code() == Code::kNotFound) {
      // A neighbour that closed its end may have done so because somebody died, and be faster than
      // the news.
      seen_ = ~std::uint64_t{0};
      const auto death = [&] {
        Status members = check(awaited, began);
        return members.is_ok() ? Status::busy() : std::move(members);
      };
      Status found = fabric_.wait(
          death, [] { return Awaited(); }, kNewsTime);
      if (found.code() == Code::kPeerDead) return found;
    }
    return status.code() == Code::kDeadlineExceeded ? name_stalled(std::move(status))
                                                    : std::move(status);
  }

  // News of a death take milliseconds on one host and a heartbeat at most between hosts.
  static constexpr auto kNewsTime = std::chrono::milliseconds(500);

  transport::Fabric& fabric_;
  const std::vector<Rank>& members_;
  std::uint64_t seen_ = ~std::uint64_t{0};  // version of the peer table that was looked at
};

}  // namespace dunlin::collective
