// StepBook: between which steps of the program the members of a job change on purpose. It belongs
// to a JobLedger.
//
// A process that joins, or a member that leaves, asks for a change. The ledger then asks each
// member for a step that it does not begin before it knows the boundary: usually the one after that
// which it is in. The boundary is the largest of them. So each member stops before the same step,
// none of them is interrupted in a step, and none waits for the others except at the boundary.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "runtime/rank.h"

namespace dunlin::bootstrap {

class StepBook {
 public:
  // The members are being asked.
  bool is_open() const { return is_open_; }
  // A member has answered that it begins no step any more (StepBoundary::kNever), and all have
  // answered: the members do not change any more.
  bool is_at_end() const { return is_at_end_; }
  void open() { is_open_ = true; }
  // The members have changed, whether at the boundary or because one died.
  void close();

  // What a member has answered. Only its first answer counts, and only once it was asked.
  void note(Rank member, std::uint64_t step);
  // The boundary, once and when all of `members` have answered.
  std::optional<std::uint64_t> take(const std::set<Rank>& members);

 private:
  bool is_open_ = false;
  bool is_told_ = false;
  bool is_at_end_ = false;
  std::map<Rank, std::uint64_t> steps_;
};

}  // namespace dunlin::bootstrap
