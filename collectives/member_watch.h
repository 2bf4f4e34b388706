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

  // An error that a member's death may be behind, and that wait() explains.
  static bool is_loss(const Status& status) {
    return status.code() == Code::kPeerDead || status.code() == Code::kNotFound;
  }

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
    const TimePoint deadline = began + timeout;
    TimePoint nap_ends = deadline;
    bool is_sooner = false;  // the next event than it was when the nap began
    const auto step = [&]() -> Status {
      if (Status status = test(); !status.is_busy()) return status;
      if (Status members = check(awaited, began); !members.is_ok()) return members;
      const std::optional<TimePoint> event = next_event();
      is_sooner = event && *event < nap_ends && fabric_.clock().now() < deadline;
      return is_sooner ? Status(Code::kDeadlineExceeded, "the nap is over") : Status::busy();
    };
    Status status;
    do {
      const TimePoint now = fabric_.clock().now();
      const std::optional<TimePoint> event = next_event();
      nap_ends = event && now < deadline ? std::min(*event, deadline) : deadline;
      status = fabric_.wait(step, awaited, std::max(nap_ends - now, Duration::zero()));
    } while (status.code() == Code::kDeadlineExceeded && (is_sooner || nap_ends < deadline));
    return explain(std::move(status), awaited, began);
  }

 private:
  const Rank* find(PeerState state) const;
  Status report_death(Rank dead, const Awaited& awaited, TimePoint began) const;
  Status name_stalled(Status error) const;

  template <typename Describe>
  Status explain(Status status, Describe&& awaited, TimePoint began) {
    if (is_loss(status)) {
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
