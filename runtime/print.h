// print: text to a stream. A full disk or a closed pipe comes back as an error.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "runtime/status.h"

namespace dunlin {

// Written through to the descriptor when it returns.
inline Status print(std::string_view text, std::FILE* stream = stdout) {
  errno = 0;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (is_written && std::fflush(stream) == 0) return Status::ok();
  return Status::from_errno(stream == stdout ? "writing to standard output" : "writing",
                            errno == 0 ? EIO : errno);
}

// To standard error. Where that can't be written, there is nobody left to tell.
inline void print_error(std::string_view text) {
  (void)print(text, stderr);
}

}  // namespace dunlin
