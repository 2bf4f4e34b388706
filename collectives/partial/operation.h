// Operation: one partial all-reduce of this rank, and Conduct, which leads it from meeting its
// members to its end. State machines under advance(); owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/partial/contacts.h"
#include "collectives/partial/memory.h"
#include "collectives/partial/partial_all_reduce.h"
#include "collectives/partial/runner.h"

namespace dunlin::collective::partial {

enum class Phase : std::uint8_t {
  kQueued,
  kMeeting,   // members that were never met before
  kGreeting,  // hellos go out and come in
  kRunning,
  kOver,
};

struct Operation {
  Task task;
  std::vector<Rank> members;  // ascending
  Phase phase = Phase::kQueued;
  Status outcome;             // where it isn't ok before the end: why it is given up
  bool is_forgotten = false;  // nobody will ask for the outcome
  // By member.
  std::vector<bool> has_greeted;           // we have, that member
  std::vector<bool> has_come;              // its hello
  std::uint64_t seen = ~std::uint64_t{0};  // version of the peer table
  bool is_anybody_gone = false;

  std::uint64_t number() const { return task.number; }
  bool is_over() const { return phase == Phase::kOver; }
  std::string describe() const;  // "partial all-reduce 7 of 0, 3, 4"
  // Has it given up when its turn comes, or now if it has come.
  void refuse(const Status& why) {
    if (outcome.is_ok()) outcome = why;
  }
};

class Conduct {
 public:
  Conduct(transport::Fabric& fabric, Contacts& contacts, Runner& runner)
      : fabric_(fabric), contacts_(contacts), runner_(runner) {}

  // Of a call that was found right.
  std::unique_ptr<Operation> prepare(const PartialCall& call, const Memory& memory);
  // As far as it gets now; the operations before it are over.
  void advance(Operation& operation);
  std::vector<transport::Awaited> awaited(const Operation& operation) const;
  // Of a wait for the operation.
  Status name_stalled(const Operation& operation, Status status) const;

 private:
  // kBusy: before the next step; ok: it has come to its end.
  Status step(Operation& operation);
  Status attend(Operation& operation);
  Status meet(Operation& operation);
  Status greet(Operation& operation);
  Status hear(Operation& operation, std::size_t member);
  Status compare(const Operation& operation, std::size_t member,
                 const transport::NotifyCell& cell) const;
  Status run(Operation& operation);
  // Whether it is known that the member's call is the same as ours.
  bool calls_as_we_do(const Operation& operation, Rank rank) const;
  // What members said that have given the operation up.
  Status heed(const Operation& operation) const;
  // Whether a member is gone that the operation can't do without: all that are dead, and those who
  // have left and are waited for.
  Status look(Operation& operation) const;
  bool stands(const Operation& operation, const Status& loss) const;
  bool is_waited_for(const Operation& operation, std::size_t member) const;
  void give_up(Operation& operation, Status why);

  transport::Fabric& fabric_;
  Contacts& contacts_;
  Runner& runner_;
};

}  // namespace dunlin::collective::partial
