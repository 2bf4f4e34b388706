// MutexManager: a mutex whose home decides, by notifications alone, for transports without atomics.
//
// Each member has a cell at the home, in which it counts: 2k - 1 says that it wants the mutex for
// the k-th time, 2k that it has done with that, having held it or not. The home writes k into a
// cell of the member to grant it. Cells tell the latest only, which is all that matters here: a
// withdrawal
// that crosses its grant is an unlock, and a member that the home sees at 2k + 1 has done with k.
// With its count a member says how many news of a death it has heard: those that it was told with a
// grant, and withdrew before it heard, go to the next.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "collectives/rma/mutex_protocol.h"

namespace dunlin::collective {

class MutexManager final : public MutexProtocol {
 public:
  // The members' links: at the home to all, elsewhere to the home.
  explicit MutexManager(MutexMembers members);

  State state() const override;
  LockOutcome outcome() const override { return outcome_; }
  bool is_managed() const override { return true; }
  void want() override { ++count_; }
  void release(bool has_heard) override;
  Status progress() override;
  std::optional<Rank> awaited() const override;

 private:
  static constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();
  // What the home knows of a member.
  struct Applicant {
    std::uint64_t word = 0;    // as last read
    std::uint64_t ticket = 0;  // of a request; 0: none
  };

  bool is_home() const { return members_.self == members_.home; }
  // What stands in a cell at the home.
  static constexpr std::uint64_t word_of(std::uint64_t count, std::uint16_t heard) {
    return count << 16 | heard;
  }
  static constexpr std::uint64_t count_in(std::uint64_t word) { return word >> 16; }
  static constexpr std::uint16_t heard_in(std::uint64_t word) {
    return static_cast<std::uint16_t>(word);
  }
  static constexpr std::uint64_t turn_of(std::uint64_t count) { return (count + 1) / 2; }
  Status tell();
  void look_for_grant();
  Status manage();
  std::uint64_t word_from(std::size_t place) const;
  void note(std::size_t place, std::uint64_t word);
  std::size_t next() const;
  Status grant();

  MutexMembers members_;
  std::uint64_t count_ = 0;  // ours
  std::uint64_t told_ = 0;   // of it, to the home
  std::uint64_t granted_ = 0;
  std::uint16_t heard_ = 0;  // news of deaths
  LockOutcome outcome_ = LockOutcome::kLocked;
  Status error_;

  // At the home:
  std::vector<Applicant> applicants_;
  std::uint64_t tickets_ = 0;
  std::size_t owner_ = kNobody;
  bool is_grant_told_ = true;
  bool is_news_ = false;         // the owner was told of a death
  bool has_owner_died_ = false;  // and the next has to be told
};

}  // namespace dunlin::collective
