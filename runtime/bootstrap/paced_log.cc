#include "runtime/bootstrap/paced_log.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {

void PacedLog::note(std::string text) {
  newest_ = std::move(text);
  ++noted_;
}

std::optional<std::string> PacedLog::take(TimePoint now) {
  if (noted_ == 0 || now < next_) return std::nullopt;
  next_ = now + kLogInterval;
  const std::size_t left_out = std::exchange(noted_, 0) - 1;
  if (left_out == 0) return std::move(newest_);
  return fmt::format("{} ({} more {} since the last such line)", newest_, left_out, what_);
}

}  // namespace dunlin::bootstrap
