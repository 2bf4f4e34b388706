// MemberWatch: the blocking wait of a collective that needs all of its members. While it waits it
// checks whether any member has died, not only those that it waits for at the moment: once one is
// dead, the group must be created anew. Owner thread only.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "collectives/waiting/rounds.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class MemberWatch {
 public:
  using Awaited = std::vector<transport::Awaited>;

  // `fabric` and `members` outlive this object.
  MemberWatch(transport::Fabric& fabric, const std::vector<Rank>& members)
      : fabric_(fabric), members_(members) {}

  // True for errors that the death of a member may have caused. wait() finds out whether it has.
  static bool may_follow_death(const Status& status) {
    return status.code() == Code::kPeerDead || status.code() == Code::kNotFound;
  }

  // Returns kPeerDead once a member is dead, and from then on always; the message lists what
  // `awaited()` returned. Checks the members only if the peer table has changed since the last
  // call. `began`: when the wait began.
  template <typename Describe>
  Status check(Describe&& awaited, TimePoint began) {
    if (fabric_.peers().version() == seen_) return death_;
    seen_ = fabric_.peers().version();
    const Rank* const dead = find(PeerState::kDead);
    if (dead != nullptr && death_.is_ok()) death_ = report_death(*dead, awaited(), began);
    return death_;
  }

  // Calls `test()` until it returns anything but kBusy. Returns the errors of Fabric::wait, or a
  // more precise one that names a dead or stopped member.
  template <typename Test, typename Describe>
  Status wait(Test&& test, Describe&& awaited, Duration timeout) {
    return wait(test, awaited, timeout, [] { return std::optional<TimePoint>(); });
  }
  // `next_event()`: when to call test() again even if no message has arrived.
  template <typename Test, typename Describe, typename NextEvent>
  Status wait(Test&& test, Describe&& awaited, Duration timeout, NextEvent&& next_event) {
    const TimePoint began = fabric_.clock().now();
    // Operations that never have to wait find dead members here.
    DUNLIN_TRY(check(awaited, began));
    const TimePoint deadline = began + timeout;
    const auto step = [&]() -> Status {
      if (Status status = test(); !status.is_busy()) return status;
      Status members = check(awaited, began);
      return members.is_ok() ? Status::busy() : std::move(members);
    };
    return explain(wait_in_rounds(fabric_, step, awaited, deadline, next_event), awaited, began);
  }

  // Returns a more precise error than one that a wait or a call has met: one that names a dead
  // member if the error may follow from its death, or a stopped one. Otherwise returns the error.
  // Waits a moment for the news of a death.
  template <typename Describe>
  Status explain(Status status, Describe&& awaited, TimePoint began) {
    if (may_follow_death(status)) {
      // A peer may have closed its connection because another member died. That can arrive before
      // the notice of the death, so wait a moment for it.
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

 private:
  const Rank* find(PeerState state) const;
  Status report_death(Rank dead, const Awaited& awaited, TimePoint began) const;
  Status name_stalled(Status error) const;

  // A notice of a death takes milliseconds on one host and at most a heartbeat between hosts.
  static constexpr auto kNewsTime = std::chrono::milliseconds(500);

  transport::Fabric& fabric_;
  const std::vector<Rank>& members_;
  std::uint64_t seen_ = ~std::uint64_t{0};  // version of the peer table at the last check
  Status death_;                            // of a member
};

}  // namespace dunlin::collective
