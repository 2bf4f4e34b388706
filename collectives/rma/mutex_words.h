// MutexWords: a mutex whose words lie in the owner rank's memory. Members change them with remote
// atomics, and the owner rank takes no part.
//
//   holder     The place of the member that holds the mutex, plus one; 0: it is free. kUnheard is
//              added while a death has to be reported to the next holder.
//   tickets    How many tickets were drawn.
//   requests   For each member the ticket with which it waits; 0: it doesn't wait.
//
// To lock, a member changes holder from 0 to itself. If that fails, it draws a ticket, writes its
// request, tries holder again, and waits for a notification with its ticket.
//
// To unlock, the holder claims the request with the lowest ticket (changes it to 0), changes holder
// from itself to that member, and notifies it. If no member waits, it changes holder to 0 and scans
// the requests once more: a member that wrote its request after the first scan, and then found
// holder still set, would wait without end. If there is such a request, the former holder changes
// holder from 0 to itself again, and hands the mutex over.
//
// Every step is an atomic that completes before the next one begins. So a member that acts on what
// another one wrote sees everything that the other one did before. A claimed request will be
// granted: a member that withdraws too late gets the mutex, and unlocks it.
//
// Once a member is gone, waiting members look at the words at regular intervals. They write their
// request again, as the member that claimed it may have died, and take the mutex from a holder that
// is gone, once it is fenced (HolderFences). They go on looking, since a member that learns of a
// death late may hand over to the dead one.
//
// An atomic whose connection breaks reports kIoError, and may have been carried out or not. Then
// the member reads the word back, which nearly always tells. Two cases remain open:
//
//   - Its own request is 0: the atomic that wrote it was not carried out, or the holder has claimed
//     the request since; or the atomic that withdrew it was carried out, or the holder was faster.
//     A holder that claims a request hands the mutex over at once. So the member watches the holder
//     word (kSettle): either it becomes this member, or it changes otherwise, and there was no
//     claim.
//   - A request that it claims as the holder is 0: it claimed the request, or the other member has
//     withdrawn it. It voids the ticket by a notification (kVoid). A member that waits with this
//     ticket goes to kSettle, and draws another one.
//
// A member that reads its own place back, after it tried to take the mutex from a dead holder,
// reports kLockedAfterDeath. Another member may have reported that death before, and handed the
// mutex over in between.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/rma/mutex_protocol.h"

namespace dunlin::collective {

class MutexWords final : public MutexProtocol {
 public:
  // Size of the words in bytes. The requests follow the first two cache lines.
  static constexpr std::size_t bytes(std::size_t members) {
    return kRequestsAt + members * sizeof(std::uint64_t);
  }
  // Whether a lane has the operations that the mutex needs.
  static bool is_possible(transport::Lane& lane) {
    return lane.atomics() != nullptr && lane.reads() != nullptr;
  }

  // `members` has links to all members. `words` is the owner rank's memory, imported here.
  static Result<std::unique_ptr<MutexWords>> create(MutexMembers members,
                                                    std::unique_ptr<transport::RemoteRegion> words);
  ~MutexWords() override;

  State state() const override;
  LockOutcome outcome() const override { return outcome_; }
  bool is_managed() const override { return false; }
  bool is_quiet() const override {
    return phase_ == Phase::kIdle || phase_ == Phase::kHeld || error_.is_error();
  }
  void want() override;
  void release(bool has_heard) override;
  Status progress() override;
  std::optional<Rank> awaited() const override;
  std::optional<Rank> fenced() const override;
  std::optional<TimePoint> next_event() const override;

 private:
  static constexpr std::size_t kTicketsAt = transport::kCacheLine;
  static constexpr std::size_t kRequestsAt = 2 * transport::kCacheLine;
  static constexpr std::size_t kNone = ~std::size_t{0};
  // A member took the mutex from a dead holder, and withdrew before its caller was told.
  static constexpr std::uint64_t kUnheard = std::uint64_t{1} << 63;
  // The tag of a notification that voids a ticket instead of granting it.
  static constexpr std::uint64_t kVoidTag = 1;
  // How often a member looks at the words while a member is gone, or in kSettle: often enough for
  // the next holder, and seldom enough not to load the owner rank's memory.
  static constexpr Duration kLookInterval = std::chrono::milliseconds(5);

  enum class Phase : std::uint8_t {
    kIdle,
    // To lock:
    kTry,       // holder 0 -> self, as the first attempt
    kDraw,      // draw a ticket
    kRequest,   // request 0 -> ticket
    kTake,      // holder 0 -> self
    kTakeOver,  // holder: a member that is gone -> self
    kWait,      // wait for a grant
    kSettle,    // wait until the holder word tells whether our request was claimed
    kClear,     // the mutex is granted: request ticket -> 0
    kHeld,
    // To unlock:
    kScan,       // read the requests
    kClaim,      // the next member's request -> 0
    kVoid,       // notify the next member that its ticket is void
    kHandOver,   // holder self -> next
    kNotify,     // notify the next member
    kFree,       // holder self -> 0
    kScanAgain,  // read the requests again
    kTakeBack,   // holder 0 -> self, as a request was written in between
    // To withdraw:
    kWithdraw,     // request ticket -> 0
    kClaimed,      // withdrawn too late: a grant may follow
    kLookClaimed,  // check for a grant whose notification was lost with its sender
  };
  struct LaneState;

  MutexWords(MutexMembers members, std::unique_ptr<LaneState> state);
  // Does the work of the phase and enters the next one; kBusy if there is nothing to do now.
  Status step();
  bool is_locking() const;
  Status step_lock();
  Status step_unlock();
  Status step_withdrawal();
  Status request();
  Status take(std::uint64_t expected, LockOutcome outcome);
  Status wait();
  Status begin_to_settle();
  Status settle();
  Status withdraw();
  // This rank holds the mutex; the holder word is `word`.
  void got(std::uint64_t word, LockOutcome outcome);
  void got(std::uint64_t word) {
    got(word, (word & kUnheard) == 0 ? LockOutcome::kLocked : LockOutcome::kLockedAfterDeath);
  }
  bool is_own(std::uint64_t word) const { return (word & ~kUnheard) == own(); }
  void proceed();
  // What has become of our ticket, as notifications say.
  enum class TicketState : std::uint8_t { kOpen, kGranted, kVoid };
  struct Ticket {
    TicketState state = TicketState::kOpen;
    std::uint64_t holder = 0;  // of kGranted: the holder word
  };
  Ticket look_up_ticket() const;
  std::uint64_t news() const { return is_unheard_ ? kUnheard : 0; }
  bool is_time_to_look();
  Status scan(Phase if_found, Phase if_none);
  // Notifies the next member of its ticket.
  Status notify_next(std::uint64_t tag);
  // Posts the phase's operation once, and returns kBusy until it has completed. before() is the
  // former value of the word then.
  template <typename Post>
  Status carry_out(Post&& post);
  // If the outcome is unknown, reads the word back: then is_read_back_ is true, and before() is the
  // value that was read.
  Status compare_swap(const transport::RemoteSlice& word, std::uint64_t expected,
                      std::uint64_t desired);
  // The same for a word of which the value that was read back tells the outcome. Tries again if the
  // operation was not carried out.
  Status compare_swap_surely(const transport::RemoteSlice& word, std::uint64_t expected,
                             std::uint64_t desired);
  // Tries again while the outcome is unknown, so it may add several times.
  Status fetch_add(const transport::RemoteSlice& word, std::uint64_t operand);
  std::uint64_t before() const;
  std::uint64_t own() const { return members_.self + 1; }
  Status go(Phase phase) {
    phase_ = phase;
    return Status::ok();
  }

  MutexMembers members_;
  HolderFences fences_;
  transport::Lane& lane_;  // to the owner rank
  std::unique_ptr<LaneState> lane_state_;
  Phase phase_ = Phase::kIdle;
  bool is_unwanted_ = true;     // the caller doesn't want the mutex, whatever the phase
  bool is_requested_ = false;   // the request with the present ticket may be in the words
  bool is_claimed_ = false;     // another member claimed our request; a grant may follow
  bool is_unheard_ = false;     // the caller was not told kLockedAfterDeath: the next holder is
  bool is_reasserted_ = false;  // our request was written again after a claim
  bool is_reading_back_ = false;
  bool is_read_back_ = false;                  // the last compare_swap() read the word back
  std::optional<std::uint64_t> settled_from_;  // the first holder word that kSettle has seen
  std::uint64_t ticket_ = 0;
  std::size_t next_ = kNone;  // place of the member that gets the mutex from this one
  std::uint64_t next_ticket_ = 0;
  std::uint64_t seen_holder_ = 0;
  std::uint64_t held_word_ = 0;  // the holder word while this rank holds the mutex
  LockOutcome outcome_ = LockOutcome::kLocked;
  std::uint64_t peers_seen_ = ~std::uint64_t{0};  // version of the peer table
  bool is_member_gone_ = false;
  TimePoint looked_at_{};
  Status error_;
};

}  // namespace dunlin::collective
