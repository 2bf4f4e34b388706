// Engine: the objects that the process groups of this process share: the session, the finisher, and
// messages between two ranks. It is made with the first group and lasts until leave(), so that
// groups may come and go while the job continues.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "bindings/c10d/messages.h"
#include "bindings/c10d/own_process.h"
#include "bindings/c10d/rendezvous.h"
#include "bindings/c10d/task.h"

namespace dunlin::torch_backend {

struct Engine {
  std::shared_ptr<binding::Session> session;
  std::shared_ptr<Finisher> finisher;
  std::shared_ptr<Messages> messages;

  // Returns the engine of this process. The membership's SharedSession::enter() becomes the
  // engine's.
  static Result<std::shared_ptr<Engine>> of(const Membership& membership);
  // Leaves the session: see SharedSession::leave(). From then on calls of existing groups fail, and
  // so do groups that other threads are forming. Call it without the GIL.
  static Status leave(binding::Ending ending, Duration timeout);
  // Call it in the child after fork().
  static void forget();
};

// This process as a member of one group. The group and its tasks in progress share it; with the
// last of them, this process's use of the communicator ends.
class Member {
 public:
  static Result<std::shared_ptr<Member>> meet(KeyValueStore store, GroupPlace place);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // kClosed in a child of fork(), which has the object but none of the threads.
  Status check_process() const { return process_.check("the group"); }
  const Engine& engine() const { return *engine_; }
  const binding::CommunicatorHandle& communicator() const { return communicator_; }
  Rank rank_in_job(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  int rank_in_group(Rank rank) const {
    return static_cast<int>(std::ranges::find(ranks_, rank) - ranks_.begin());
  }
  const std::string& name() const { return name_; }

 private:
  Member(std::shared_ptr<Engine> engine, Membership membership);

  std::shared_ptr<Engine> engine_;
  binding::CommunicatorHandle communicator_;
  std::vector<Rank> ranks_;
  std::string name_;
  OwnProcess process_;
};

}  // namespace dunlin::torch_backend
