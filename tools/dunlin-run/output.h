// LineRelay: passes a child's output on, line by line, so that the lines of several never mix.
#pragma once

#include <string>
#include <string_view>

#include "runtime/fd.h"

namespace dunlin::run {

class LineRelay {
 public:
  // From `source` (non-blocking) to the descriptor `target`, each line with `prefix` before it.
  LineRelay(Fd source, int target, std::string prefix);

  // -1 after the end.
  int fd() const { return source_.get(); }
  // Passes on the complete lines that have arrived. At the end of the stream also the last line,
  // with the line feed that it lacks.
  void relay();

 private:
  void pass_on(std::string_view line);

  Fd source_;
  int target_;
  std::string prefix_;
  std::string pending_;  // the beginning of a line
  std::string ready_;    // to be written
};

}  // namespace dunlin::run
