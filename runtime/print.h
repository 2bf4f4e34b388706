// print() writes text to a stream. A full disk or a closed pipe is an error.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "runtime/status.h"

namespace dunlin {

// Flushes: when it returns, the text has been written to the descriptor.
inline Status print(std::string_view text, std::FILE* stream = stdout) {
  errno = 0;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (is_written && std::fflush(stream) == 0) return Status::ok();
  return Status::from_errno(stream == stdout ? "writing to standard output" : "writing",
                            errno == 0 ? EIO : errno);
}

// Writes to standard error. Failure is ignored, as nothing is left to report it to.
inline void print_error(std::string_view text) {
  (void)print(text, stderr);
}

}  // namespace dunlin
