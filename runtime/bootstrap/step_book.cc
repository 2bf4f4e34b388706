#include "runtime/bootstrap/step_book.h"

#include <algorithm>

#include "runtime/bootstrap/step_boundary.h"

namespace dunlin::bootstrap {

void StepBook::close() {
  is_open_ = is_told_ = is_at_end_ = false;
  steps_.clear();
}

void StepBook::note(Rank member, std::uint64_t step) {
  if (is_open_) steps_.emplace(member, step);
}

std::optional<std::uint64_t> StepBook::take(const std::set<Rank>& members) {
  if (!is_open_ || is_told_ || members.empty()) return std::nullopt;
  std::uint64_t boundary = 0;
  for (const Rank member : members) {
    const auto found = steps_.find(member);
    if (found == steps_.end()) return std::nullopt;
    boundary = std::max(boundary, found->second);
  }
  is_told_ = true;
  is_at_end_ = boundary == StepBoundary::kNever;
  return boundary;
}

}  // namespace dunlin::bootstrap
