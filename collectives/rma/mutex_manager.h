// MutexManager: a mutex that is managed by its owner rank, with notifications only, for transports
// without atomics.
//
// Each member has a cell at the owner rank, in which it counts. 2k - 1 says that it wants the mutex
// for the k-th time. 2k says that it is done with that request, whether it held the mutex or not.
// The owner rank grants the mutex by writing k into a cell of the member. A cell holds only the
// latest value, which is all that matters here: a withdrawal that crosses its grant is an unlock,
// and a member whose count is 2k + 1 is done with k.
//
// Along with its count a member says how many reports of a death its caller has heard. A report
// that came with a grant, and that the member's caller did not hear because it withdrew, goes to
// the next holder.
//
// If the holder is gone and cannot be shut out, because the coordinator is gone too, the mutex is
// lost: the owner rank answers every request with a grant that says so.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "collectives/rma/mutex_protocol.h"

namespace dunlin::collective {

class MutexManager final : public MutexProtocol {
 public:
  // `members` has links to all members at the owner rank, and to the owner rank elsewhere.
  explicit MutexManager(MutexMembers members);

  State state() const override;
  LockOutcome outcome() const override { return outcome_; }
  bool is_managed() const override { return true; }
  bool is_quiet() const override {
    if (error_.is_error()) return true;
    return !is_at_owner_rank() && (state() == State::kIdle || state() == State::kHeld);
  }
  void want() override { ++count_; }
  void release(bool has_heard) override;
  Status progress() override;
  std::optional<Rank> awaited() const override;
  std::optional<Rank> fenced() const override;

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  // What the owner rank knows about a member.
  struct Applicant {
    std::uint64_t word = 0;    // the member's cell as last read
    std::uint64_t ticket = 0;  // the place of its request in the queue; 0: it has none
  };

  bool is_at_owner_rank() const { return members_.self == members_.owner_place; }
  // The value of a member's cell at the owner rank.
  static constexpr std::uint64_t word_of(std::uint64_t count, std::uint16_t heard) {
    return count << 16 | heard;
  }
  static constexpr std::uint64_t count_in(std::uint64_t word) { return word >> 16; }
  static constexpr std::uint16_t heard_in(std::uint64_t word) {
    return static_cast<std::uint16_t>(word);
  }
  static constexpr std::uint64_t turn_of(std::uint64_t count) { return (count + 1) / 2; }
  Status tell();
  Status look_for_grant();
  Status manage();
  std::uint64_t word_from(std::size_t place) const;
  void note(std::size_t place, std::uint64_t word);
  std::size_t next() const;
  Status grant();
  void refuse();

  MutexMembers members_;
  std::uint64_t count_ = 0;  // this rank's
  std::uint64_t told_ = 0;   // the last count that was sent to the owner rank
  std::uint64_t granted_ = 0;
  std::uint16_t heard_ = 0;  // reports of a death that the caller was told
  LockOutcome outcome_ = LockOutcome::kLocked;
  Status error_;

  // Only the owner rank uses these:
  HolderFences fences_;
  std::vector<Applicant> applicants_;
  std::uint64_t tickets_ = 0;
  std::size_t holder_ = kNone;
  bool is_grant_told_ = true;
  bool is_news_ = false;          // the holder was told of a death
  bool has_holder_died_ = false;  // a holder died, and the next one has to be told
  Status lost_;                   // why nobody gets the mutex any more
};

}  // namespace dunlin::collective
