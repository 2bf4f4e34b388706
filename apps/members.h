// Members: the ranks that train together in a program whose ranks may join, leave and die while it
// runs, and how they change. Each program adds what its members tell one another in a new epoch,
// and how a newcomer gets its model.
//
//   Members members(fabric, {.program = "dunlin-svm", .unit = "exchanges"});
//   if (members.is_newcomer()) members.join(terms);     // then as after a change
//   for (;;) {
//     if (members.change_before(step + 1, is_asked_to_leave)) {
//       members.end_epoch();
//       if (members.is_leaving()) return members.leave(step);
//       members.reform();
//       ...                                              // a new group over members.ranks()
//     }
//     status = members.survive(train(), [] { ... });   // likewise a new group
//   }
//
// All calls but those of the first paragraph are made by the thread that owns the bootstrap.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/agreement.h"
#include "apps/shard.h"
#include "transports/fabric.h"

namespace dunlin {

enum class OnPeerLoss { kFail, kContinue };
constexpr const char* to_string(OnPeerLoss what) {
  return what == OnPeerLoss::kFail ? "fail" : "continue";
}

// How the members of an epoch differ from those of the last one.
struct MembersChange {
  std::uint64_t epoch = 0;
  std::size_t workers = 0;  // from now on
  std::vector<Rank> joined{};
  std::vector<Rank> left{};
  std::vector<Rank> died{};

  // Adds the fields to a JSON line of the kind "members".
  void describe(nlohmann::ordered_json& line) const;
  // "epoch 3: 5 workers; joined: 4; died: 1"
  std::string to_text() const;
};

class Members {
 public:
  struct Options {
    std::string program;  // for messages to people and between ranks
    std::string unit;     // what a step is called in messages, in the plural
    OnPeerLoss on_peer_loss = OnPeerLoss::kFail;
    // The members change before the same step. False: their steps have nothing in common, and each
    // of them changes when it has ended its own.
    bool has_common_steps = true;
  };

  // Borrows the fabric for its lifetime. The members are those of the bootstrap.
  Members(transport::Fabric& fabric, Options options);

  // Ranks may join the job while it runs, and leave it.
  bool is_elastic() const;
  // This rank has not started the job, but joins it.
  bool is_newcomer() const;
  int founders() const;  // how many ranks started the job
  OnPeerLoss on_peer_loss() const { return options_.on_peer_loss; }

  const Membership& membership() const { return now_; }
  const std::vector<Rank>& ranks() const { return now_.members; }
  std::uint64_t epoch() const { return now_.epoch; }
  bool is_first() const { return ranks().front() == fabric_.rank(); }
  // Those that trained before the last changes; see settle().
  const std::vector<Rank>& before() const { return before_; }

  // The part of the training set that falls to this rank.
  Shard share() const;
  // The same before the training. A newcomer gets what it will have if it is the next one that
  // becomes a member.
  Shard first_share() const;
  // Members that are waited for have this long: they may still read their data, or be in a step.
  Duration timeout() const;
  // Steps may take this long.
  void allow(Duration step) { longest_step_ = step; }

  // Tells newcomers what all members have in common. One member does it.
  Status post_terms(const Terms& terms);
  // A newcomer's way to the members: returns when it is one. kInvalidArgument, with what differs,
  // if the members have other terms.
  Status join(const Terms& terms);

  // Whether the members change before this step, which ascends. In jobs that are not elastic, they
  // never do. `wants_to_leave`: this rank is to leave.
  Result<bool> change_before(std::uint64_t step, bool wants_to_leave);
  // The same before the end. Members that have begun to change do so together, also if some are at
  // their end.
  Result<bool> change_before_end();
  // To be called on every member when a change is due. Returns when all have called it: none of
  // them expects anything of the epoch any more. Then each calls leave() if is_leaving(), and
  // otherwise reform().
  Status end_epoch();
  bool is_leaving() const { return is_leaving_; }
  // Leaves the job, and says so: after `steps` steps.
  void leave(std::uint64_t steps);
  // Returns when the new members are there.
  Status reform();

  // To be called with the outcome of what members did together. If a member's death was the cause
  // and OnPeerLoss says to go on, the survivors become the members, `regroup` makes a group of
  // them, and its outcome is returned. That is repeated if another member dies meanwhile. Otherwise
  // returns `outcome`, or kPeerDead if that only followed a death.
  Status survive(Status outcome, const std::function<Status()>& regroup);
  // Drops the links to former members.
  void drop_links();

  // The members are about to train. Logs and returns what has changed since they did last, in one
  // epoch or several. `newcomers`: those that had not trained before.
  MembersChange settle(const std::vector<Rank>& newcomers, std::uint64_t steps);

 private:
  Status name_death(Status failure) const;

  transport::Fabric& fabric_;
  const Options options_;
  Membership now_;
  std::vector<Rank> before_;
  Duration longest_step_{};
  std::set<Rank> former_;  // members of former epochs, since drop_links()
  bool is_leaving_ = false;
};

}  // namespace dunlin
