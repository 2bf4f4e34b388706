// Mutex: a DistributedMutex (collectives/rma/mutex.h) of all ranks, as part of the session.
//
// Threads: any. It excludes ranks, not the threads of a rank: lock() is kInvalidArgument while
// another thread of the rank holds the mutex or waits for it. Where the owner rank manages it, that
// rank's background thread answers. It lasts until free() or the session's shutdown(); later calls
// return kClosed. The session has to outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/session/session.h"
#include "collectives/rma/mutex.h"

namespace dunlin::binding {

class Mutex {
 public:
  // Collective over all ranks, with the same name and owner rank, whose memory holds the mutex.
  static Result<std::shared_ptr<Mutex>> create(Session& session, std::string name, Rank owner_rank,
                                               const Session::Interrupt& interrupt);
  // Collective. kInvalidArgument if a rank holds the mutex or waits for it. It is freed if this
  // returns ok or kPeerDead.
  Status free(const Session::Interrupt& interrupt);

  // Several mutexes at once, with as many agreements of all ranks as one mutex takes.
  struct Plan {
    std::string name;
    Rank owner_rank;            // one of the members
    std::vector<Rank> members;  // the ranks that may lock it, in the same order on all of them
  };
  using Set = std::vector<std::shared_ptr<Mutex>>;
  // Collective over all ranks. Each rank gives the plans that it is a member of, and all give the
  // same `name` of the set. After an error there is none of them.
  static Result<Set> create(Session& session, std::string_view name, const std::vector<Plan>& plans,
                            const Session::Interrupt& interrupt);
  // Collective, as free(). Frees all or none.
  static Status free(Session& session, std::string_view name, const Set& set,
                     const Session::Interrupt& interrupt);

  const std::string& name() const { return name_; }
  // After an error, such as a timeout or an interrupt, this rank no longer waits for the mutex.
  Result<collective::LockOutcome> lock(Duration timeout, const Session::Interrupt& interrupt);
  // Waits for Config::deadline at most until others can lock it. After an error it gets unlocked
  // later.
  Status unlock(const Session::Interrupt& interrupt);

 private:
  class Body;
  class Lock;
  class Unlock;

  Mutex(Session& session, std::string name) : session_(session), name_(std::move(name)) {}
  static Result<Set> create(Session& session, std::string_view what, std::string_view alike,
                            const std::vector<Plan>& plans, const Session::Interrupt& interrupt);
  Status prepare(const Plan& plan, std::uint64_t epoch);
  Status check_free();
  template <typename Use>
  Status with_body(Use&& use);

  Session& session_;
  std::string name_;
  std::shared_ptr<Body> body_;
};

}  // namespace dunlin::binding
