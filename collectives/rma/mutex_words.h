// MutexWords: a mutex of words in the home's memory, by remote atomics; the home takes no part.
//
//   //   owner      the place of who holds it, plus one; 0: nobody; plus kUnheard, when a death is
//   to be
//              told to whoever gets it
//   tickets    how many were drawn
//   requests   per member, the ticket with which it waits; 0: it doesn't
//
// To lock: owner 0 -> self. If that fails, draw a ticket, write the request, try owner again, and
// wait for a notification with the ticket. To unlock: claim the request with the lowest ticket (->
// 0), owner self -> that member, notify it. If nobody waits, owner -> 0, and look once more: who
// wrote a request after the first look and found the owner still set would wait in vain; so owner 0
// -> self again, and hand over.
//
// Every step is an atomic that is complete before the next one begins, so that what one member did
// before is seen by whoever acts on it. A request that was claimed is going to be granted: who
// withdraws too late gets the mutex, and unlocks.
//
// Once a member is gone, those who wait look: they write their request again (its claimer may have
// died), and take the mutex from an owner who is gone. They look time and again from then on, since
// a member that hears of a death late may hand over to the dead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/rma/mutex_protocol.h"

namespace dunlin::collective {

class MutexWords final : public MutexProtocol {
 public:
  // Bytes of the words; requests stand behind the first two cache lines.
  static constexpr std::size_t bytes(std::size_t members) {
    return kRequestsAt + members * sizeof(std::uint64_t);
  }
  // Whether a lane can carry it.
  static bool is_possible(transport::Lane& lane) {
    return lane.atomics() != nullptr && lane.reads() != nullptr;
  }

  // The members' links: to all. `words`: the home's, imported.
  static Result<std::unique_ptr<MutexWords>> create(MutexMembers members,
                                                    std::unique_ptr<transport::RemoteRegion> words);
  ~MutexWords() override;

  State state() const override;
  LockOutcome outcome() const override { return outcome_; }
  bool is_managed() const override { return false; }
  void want() override;
  void release(bool has_heard) override;
  Status progress() override;
  std::optional<Rank> awaited() const override;
  std::optional<TimePoint> next_event() const override;

 private:
  static constexpr std::size_t kTicketsAt = transport::kCacheLine;
  static constexpr std::size_t kRequestsAt = 2 * transport::kCacheLine;
  static constexpr std::size_t kNobody = ~std::size_t{0};
  // Somebody took it from the dead, and withdrew without hearing of it.
  static constexpr std::uint64_t kUnheard = std::uint64_t{1} << 63;
  // Between looks of those who wait while a member is gone: soon enough for the next owner, seldom
  // enough for the home's memory.
  static constexpr Duration kLookInterval = std::chrono::milliseconds(5);

  enum class Phase : std::uint8_t {
    kIdle,
    // To lock:
    kTry,       // owner 0 -> self, before anything else
    kDraw,      // a ticket
    kRequest,   // request 0 -> ticket
    kTake,      // owner 0 -> self
    kTakeOver,  // owner that is gone -> self
    kWait,      // for a grant
    kClear,     // request ticket -> 0, having got the mutex
    kHeld,
    // To unlock:
    kScan,       // the requests
    kClaim,      // request of the next -> 0
    kHandOver,   // owner self -> next
    kNotify,     // the next
    kFree,       // owner self -> 0
    kScanAgain,  // the requests
    kTakeBack,   // owner 0 -> self, as somebody has come meanwhile
    // Not to wait any more:
    kWithdraw,     // request ticket -> 0
    kClaimed,      // withdrawn too late: a grant may come
    kLookClaimed,  // whether one came whose notification got lost with its sender
  };
  struct Wire;

  MutexWords(MutexMembers members, std::unique_ptr<Wire> wire);
  // Does what the phase is for and goes on to the next; kBusy when there is nothing to do now.
  Status step();
  bool is_locking() const;
  Status step_lock();
  Status step_unlock();
  Status step_withdrawal();
  Status take(std::uint64_t expected, LockOutcome outcome);
  Status wait();
  // The owner word is ours, and is `word`.
  void got(std::uint64_t word, LockOutcome outcome);
  void got(std::uint64_t word) {
    got(word, (word & kUnheard) == 0 ? LockOutcome::kLocked : LockOutcome::kLockedAfterDeath);
  }
  bool is_own(std::uint64_t word) const { return (word & ~kUnheard) == own(); }
  void proceed();
  // The owner word that a notification stands for.
  std::optional<std::uint64_t> granted() const;
  std::uint64_t news() const { return is_unheard_ ? kUnheard : 0; }
  bool is_time_to_look();
  Status scan(Phase if_somebody, Phase if_nobody);
  Status notify_next();
  // Posts the phase's operation, once, and is busy until it is complete; then before() is the
  // word's former value.
  template <typename Post>
  Status carry_out(Post&& post);
  Status compare_swap(const transport::RemoteSlice& word, std::uint64_t expected,
                      std::uint64_t desired);
  Status fetch_add(const transport::RemoteSlice& word, std::uint64_t operand);
  std::uint64_t before() const;
  std::uint64_t own() const { return members_.self + 1; }
  Status go(Phase phase) {
    phase_ = phase;
    return Status::ok();
  }

  MutexMembers members_;
  transport::Lane& lane_;  // to the home
  std::unique_ptr<Wire> wire_;
  Phase phase_ = Phase::kIdle;
  bool is_unwanted_ = true;     // by the caller, whatever the phase
  bool is_requested_ = false;   // with the present ticket
  bool is_claimed_ = false;     // somebody claimed our request; a grant may come
  bool is_unheard_ = false;     // what kLockedAfterDeath says, by the caller
  bool is_reasserted_ = false;  // our request was written again after a claim
  std::uint64_t ticket_ = 0;
  std::size_t next_ = kNobody;  // place of who gets it from us
  std::uint64_t next_ticket_ = 0;
  std::uint64_t seen_owner_ = 0;
  std::uint64_t held_word_ = 0;  // the owner word while it is ours
  LockOutcome outcome_ = LockOutcome::kLocked;
  std::uint64_t peers_seen_ = ~std::uint64_t{0};  // version of the peer table
  bool is_anybody_gone_ = false;
  TimePoint looked_at_{};
  Status error_;
};

}  // namespace dunlin::collective
