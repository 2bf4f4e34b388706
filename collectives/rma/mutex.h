// DistributedMutex: mutual exclusion among ranks. The mutex lives at an owner rank. A rank that
// waits for it waits for a notification, and sends nothing in the meantime (BlueFog, section VI-B,
// has such a mutex for its windows).
//
// There are two protocols. If every member reaches the owner rank with remote atomics that agree
// with one another (of system scope, or all over the same transport), the mutex consists of words
// in the owner rank's memory, and the owner rank takes no part (mutex_words.h). Otherwise the owner
// rank manages it (mutex_manager.h): locks and unlocks are notifications that its progress()
// answers. The fabric's progress() calls it, and with it every wait of the library.
//
// Requests are granted in the order in which they reach the owner rank. If a member dies or leaves
// while it holds the mutex, the next member gets it, and is told so. Before that, all members that
// are present have revoked the access of the former holder: nothing that it has put, or still puts,
// lands in their memory any more. So what the mutex protects has to lie at members. A member that
// dies or leaves while it waits is passed over. If the owner rank is gone, so is the mutex:
// kPeerDead.
//
// The mutex orders nothing but itself: data that were put under its protection have to be flushed
// (kRemote) before it is unlocked. A state machine: progress() of the mutex or of the fabric
// moves it on. Nothing is allocated between connect() and the end, except for errors. An
// error other than those of arguments and deadlines ends the mutex for this rank. A rank that is
// cut off (fences.h) holds the mutex no more, and all calls return why. Owner thread only. Destroy
// it when all members are done with theirs (after a barrier of the bootstrap), before the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/rma/offers.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class MutexProtocol;

struct MutexOptions {
  std::string name = "mutex";  // tells the mutexes of a job apart; the same on all members
  Membership membership;       // the ranks that may lock it; the same on all members
  Rank owner_rank;             // one of the members; the same on all members
  // The owner rank manages it, whatever the transports can do; the same on all members.
  bool is_managed = false;
};

enum class LockOutcome : std::uint8_t {
  kLocked,
  // The former holder died or left without unlocking: what the mutex protects may be half done.
  kLockedAfterDeath,
};

class DistributedMutex {
 public:
  // Collective over the members, in two steps: prepare() connects to the owner rank and publishes;
  // connect() blocks until every member is prepared, for at most config.deadline.
  static Result<std::unique_ptr<DistributedMutex>> prepare(transport::Fabric& fabric,
                                                           MutexOptions options);
  Status connect();
  ~DistributedMutex();
  DistributedMutex(const DistributedMutex&) = delete;
  DistributedMutex& operator=(const DistributedMutex&) = delete;

  // Begins to lock. kInvalidArgument if this rank locks or holds it already; kBusy while its last
  // unlock() or cancel() is in progress.
  Status start();
  // kBusy until this rank holds the mutex.
  Result<LockOutcome> test();
  // Withdraws the request of a start(). If it is granted all the same, the mutex is unlocked.
  // kInvalidArgument without a request.
  Status cancel();
  // start(), then test() until it isn't busy. At the deadline the request is withdrawn. Returns the
  // errors of Fabric::wait(), and kUnavailable, from then on, if the holder died and the
  // coordinator, which alone can shut it out, is gone too.
  Result<LockOutcome> lock(Duration timeout);

  // Begins to unlock; kInvalidArgument unless this rank holds it.
  Status start_unlock();
  // kBusy until other members can lock it.
  Status test_unlock();
  Status unlock(Duration timeout);

  // Moves on what was begun, and the requests of all members at an owner rank that manages it.
  Status progress();
  // Costs one load and one comparison.
  bool is_held() const;
  // Whether the owner rank manages it; valid after connect().
  bool is_managed() const;
  // Whether other members need this rank's progress() before its next call.
  bool needs_progress() const;
  // The peers that this rank waits for, as far as it knows.
  std::vector<transport::Awaited> awaited() const;

 private:
  DistributedMutex(transport::Fabric& fabric, MutexOptions options);
  Status allocate();
  std::string topic() const;  // of what the members publish
  // What a member has published.
  Result<MutexOffer> parse(Rank rank, std::span<const std::byte> bytes) const;
  // The error that says why this rank is cut off, if it is.
  Status check_standing() const;
  template <typename Ready>
  Status wait(Ready&& ready, Duration timeout);

  transport::Fabric& fabric_;
  MutexOptions options_;
  std::unique_ptr<transport::LocalRegion> words_;  // at the owner rank
  transport::NotifyId cells_{};                    // one per member, which alone writes it
  bool has_cells_ = false;
  bool is_published_ = false;
  bool has_heard_ = false;  // the caller was told the outcome of its lock
  std::unique_ptr<MutexProtocol> protocol_;
  std::optional<transport::Fabric::Task> task_;  // calls progress(), once connected
};

}  // namespace dunlin::collective
