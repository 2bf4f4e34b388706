// Engine: what the process groups of this process share: the runtime, the finisher, and messages
// between two ranks. Made with the first group, it lasts until leave(), so that groups may come and
// go while the job goes on.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/bindings/c10d/messages.h"
#include "collectives/bindings/c10d/own_process.h"
#include "collectives/bindings/c10d/rendezvous.h"
#include "collectives/bindings/c10d/task.h"

namespace dunlin::torch_backend {

struct Engine {
  std::shared_ptr<binding::Runtime> runtime;
  std::shared_ptr<Finisher> finisher;
  std::shared_ptr<Messages> messages;

  // Of this process. Takes over the membership's entry into the shared runtime.
  static Result<std::shared_ptr<Engine>> of(const Membership& membership);
  // Gives the runtime back: see SharedRuntime::leave(). Groups that are left fail from then on, as
  // do those that other threads are just forming. Not under Python's lock.
  static Status leave(binding::Ending ending, Duration patience);
  // After fork(), in the child.
  static void forget();
};

// This process as a member of one group: shared by the group and its tasks under way, whose end is
// the end of the communicator's use here.
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
