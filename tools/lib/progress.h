// Progress: a line that shows on a terminal how far a long computation has come. Owner thread only.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "runtime/clock.h"

namespace dunlin::tools {

class Progress {
 public:
  // Writes to standard error if that is a terminal; otherwise it does nothing.
  explicit Progress(const Clock& clock);
  // Writes to `stream`.
  Progress(const Clock& clock, std::FILE* stream) : clock_(clock), stream_(stream) {}
  // Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Replaces the line by what `describe` returns. That is called only when it is time for another
  // line: from kDelay after the construction on, every kInterval.
  void show(const std::function<std::string()>& describe);

  static constexpr Duration kDelay = std::chrono::seconds(3);
  static constexpr Duration kInterval = std::chrono::milliseconds(500);

 private:
  const Clock& clock_;
  std::FILE* stream_ = nullptr;  // null: no terminal
  TimePoint next_ = clock_.now() + kDelay;
  bool has_line_ = false;
};

}  // namespace dunlin::tools
