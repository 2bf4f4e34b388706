// DistributedMutex: mutual exclusion among ranks. A home rank holds the mutex; whoever waits for it
// waits for a notification, and asks nothing meanwhile (BlueFog, section VI-B, has such a mutex for
// its windows).
//
// Where every member reaches the home with remote atomics that agree with one another (of the
// system's scope, or all over the same transport), the mutex is words in the home's memory and the
// home takes no part (mutex_words.h). Else the home manages it (mutex_manager.h): locks and unlocks
// are notifications that its progress() answers, so that the home's process has to call progress()
// for the others to get on.
//
// First come, first served, by the order in which the requests reach the home. A member that dies
// or leaves while it holds the mutex loses it to the next one, who is told so; one that dies or
// leaves while it waits is passed over. When the home is gone, the mutex is, too: kPeerDead.
//
// It orders nothing but itself: what was put in its protection has to be flushed (kRemote) before
// it is unlocked. A state machine; progress() moves it on, the caller progresses the fabric.
// Nothing allocates between connect() and the end, but for errors. An error other than those of
// arguments and deadlines ends the mutex for this rank. Owner thread only. Destroy it when all
// members are done with theirs (a barrier of the bootstrap), before the fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective {

class MutexProtocol;

struct MutexOptions {
  std::string name = "mutex";  // distinguishes mutexes of one job; the same on all members
  Membership membership;       // who may lock; the same on all members
  Rank home;                   // one of them
  // Has the home manage it, whatever the transports can do; the same on all members.
  bool is_managed = false;
};

enum class LockOutcome : std::uint8_t {
  kLocked,
  // The former owner was gone without having unlocked: what the mutex protects may be half done.
  kLockedAfterDeath,
};

class DistributedMutex {
 public:
  // Collective over the members, in two steps: prepare() makes the link to the home and publishes,
  // connect() blocks until every member is prepared (config.deadline for each).
  static Result<std::unique_ptr<DistributedMutex>> prepare(transport::Fabric& fabric,
                                                           MutexOptions options);
  Status connect();
  ~DistributedMutex();
  DistributedMutex(const DistributedMutex&) = delete;
  DistributedMutex& operator=(const DistributedMutex&) = delete;

  // Begins to lock. kInvalidArgument when this rank locks or holds it already; kBusy while its last
  // unlock() or cancel() isn't through.
  Status start();
  // kBusy until this rank holds the mutex.
  Result<LockOutcome> test();
  // Withdraws the request of a start(); unlocks, should it be granted all the same.
  // kInvalidArgument without a request.
  Status cancel();
  // start() and test() until done. At the deadline the request is withdrawn. Errors as
  // Fabric::wait.
  Result<LockOutcome> lock(Duration timeout);

  // Begins to unlock; kInvalidArgument unless this rank holds it.
  Status start_unlock();
  // kBusy until others can have it.
  Status test_unlock();
  Status unlock(Duration timeout);

  // Moves on what was begun, and at a managing home the requests of all.
  Status progress();
  bool is_held() const;
  // Whether the home manages it; meaningful after connect().
  bool is_managed() const;
  // While this rank waits: for whom, as far as it knows.
  std::vector<transport::Awaited> awaited() const;

 private:
  struct Offer;

  DistributedMutex(transport::Fabric& fabric, MutexOptions options);
  Status allocate();
  std::string key(Rank rank) const;
  Result<Offer> lookup(Rank rank) const;
  template <typename Ready>
  Status wait(Ready&& ready, Duration timeout);

  transport::Fabric& fabric_;
  MutexOptions options_;
  std::unique_ptr<transport::LocalRegion> words_;  // at the home
  transport::NotifyId cells_{};                    // one per member, who alone writes it
  bool has_cells_ = false;
  bool has_heard_ = false;  // the caller, of the outcome of its lock
  std::unique_ptr<MutexProtocol> protocol_;
};

}  // namespace dunlin::collective
