// PacedLog: warnings whose number others choose, such as those about strangers that connect. It
// makes at most one line of them per second, which counts what it leaves out. It has no clock and
// does not write to the log itself. One thread uses it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "runtime/clock.h"

namespace dunlin::bootstrap {

class PacedLog {
 public:
  // `what` names in the plural what is counted, such as "connections refused".
  explicit PacedLog(std::string what) : what_(std::move(what)) {}

  void note(std::string text);
  // Returns the line to log now, if there is one: the newest text, and how many were left out.
  std::optional<std::string> take(TimePoint now);
  // When take() will return a line; TimePoint::max() when nothing has been noted.
  TimePoint next() const { return noted_ == 0 ? TimePoint::max() : next_; }

 private:
  std::string what_;
  std::string newest_;
  std::size_t noted_ = 0;  // since the last line
  TimePoint next_ = TimePoint::min();
};

}  // namespace dunlin::bootstrap
