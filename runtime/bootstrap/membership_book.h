// MembershipBook: which ranks are members of a job, epoch by epoch, and how members change on
// purpose. It belongs to a JobLedger, which decides when all have agreed on a change.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/step_book.h"
#include "runtime/bootstrap/wire.h"

namespace dunlin::bootstrap {

class MembershipBook {
 public:
  using Send = std::function<void(Rank to, const Message& message)>;
  // Ranks 0 to `founders` - 1 are the members of epoch 0. All of them are present until
  // note_gone().
  MembershipBook(int founders, Send send);

  const Membership& membership() const { return membership_; }
  bool is_member(Rank rank) const;
  // The members that are neither dead nor have left, ascending.
  const std::set<Rank>& present() const { return present_; }
  // The members of the epoch that have died, in the order of their deaths.
  const std::vector<Rank>& dead() const { return dead_; }

  // Has no effect for a rank that is no member.
  void note_gone(Rank rank, PeerState state);
  // Begins the next epoch. `members` are ascending and present.
  void change(std::vector<Rank> members);

  // Asks the members between which steps they change, unless that has been asked in this epoch.
  void ask_steps();
  // A member that will leave between two steps. It is asked for in every epoch until it has left.
  void retire(Rank member);
  // Asks anew in a new epoch, if a member is still to leave.
  void ask_again() {
    if (!retiring_.empty()) ask_steps();
  }
  // The answer of a member to ask_steps(). It may be late, and of an earlier epoch. kCorrupted for
  // a malformed one.
  Status note_step(Rank member, const Message& answer);
  // Whether the members do not change any more, since one of them is at its end.
  bool is_at_end() const { return steps_.is_at_end(); }

 private:
  void settle_steps();

  Send send_;
  Membership membership_;
  std::set<Rank> present_;
  std::vector<Rank> dead_;
  std::set<Rank> retiring_;
  StepBook steps_;
};

}  // namespace dunlin::bootstrap
