// PartialOperation: one partial all-reduce of this rank. PartialProtocol: leads an operation from
// meeting its members to its end. State machines under advance(). Owner thread only.
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
  kMeeting,   // connects to members that this rank has not met before
  kGreeting,  // exchanges hellos with all members
  kRunning,
  kOver,
};

struct PartialOperation {
  Task task;
  std::vector<Rank> members;  // ascending
  std::string label;          // the call's
  Phase phase = Phase::kQueued;
  Status outcome;             // an error before the end: why the operation is aborted
  bool is_forgotten = false;  // the caller will not ask for the outcome
  // These have one element per member:
  std::vector<bool> has_greeted;           // this rank's hello was sent to it
  std::vector<bool> has_come;              // its hello has arrived
  std::uint64_t seen = ~std::uint64_t{0};  // version of the peer table at the last check
  bool is_member_gone = false;

  std::uint64_t number() const { return task.number; }
  bool is_over() const { return phase == Phase::kOver; }
  std::string describe() const;  // "partial all-reduce 7 of 0, 3, 4"
  // Aborts the operation when its turn comes, or with the next advance() if it has come.
  void refuse(const Status& why) {
    if (outcome.is_ok()) outcome = why;
  }
};

class PartialProtocol {
 public:
  PartialProtocol(transport::Fabric& fabric, Contacts& contacts, Runner& runner)
      : fabric_(fabric), contacts_(contacts), runner_(runner) {}

  // `call` has passed all checks.
  std::unique_ptr<PartialOperation> prepare(const PartialCall& call, const Memory& memory);
  // Moves the operation on as far as it gets now. All operations before it have to be over.
  void advance(PartialOperation& operation);
  std::vector<transport::Awaited> awaited(const PartialOperation& operation) const;
  // The first of them, without an allocation.
  Rank blocker(const PartialOperation& operation) const;
  // Improves the error of a wait for the operation: names a stopped member.
  Status name_stalled(const PartialOperation& operation, Status status) const;

 private:
  // kBusy: waits for the next step; ok: the operation has succeeded.
  Status step(PartialOperation& operation);
  Status check_while_meeting(PartialOperation& operation);
  Status meet(PartialOperation& operation);
  Status greet(PartialOperation& operation);
  Status hear(PartialOperation& operation, std::size_t member);
  Status compare(const PartialOperation& operation, std::size_t member,
                 const transport::NotifyCell& cell) const;
  Status run(PartialOperation& operation);
  // Whether the member's call is known to be the same as this rank's.
  bool has_same_call(const PartialOperation& operation, Rank rank) const;
  // An error if a member has aborted the operation.
  Status check_aborts(const PartialOperation& operation) const;
  // An error if a member is dead, or has left although the operation still waits for it.
  Status check_members(PartialOperation& operation) const;
  // Whether an error of check_members() ends the operation, even after what has arrived since.
  bool is_final(const PartialOperation& operation, const Status& loss) const;
  bool is_waited_for(const PartialOperation& operation, std::size_t member) const;
  // The same, but without members that are as far as this rank, and those that are gone.
  bool holds_up(const PartialOperation& operation, std::size_t member) const;
  void give_up(PartialOperation& operation, const Status& why);

  transport::Fabric& fabric_;
  Contacts& contacts_;
  Runner& runner_;
};

}  // namespace dunlin::collective::partial
