// Stands in for NIXL's own logging header, which needs Abseil. NIXL's backend headers include it
// under this name and use these macros.
#pragma once

#include <cassert>
#include <sstream>

#include "runtime/log.h"

namespace dunlin::nixl {

// Collects a message, and logs it at its end.
class LogLine {
 public:
  LogLine() = default;
  ~LogLine() { DUNLIN_WARN("nixl: {}", text_.str()); }
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  template <typename T>
  LogLine& operator<<(const T& value) {
    text_ << value;
    return *this;
  }

 private:
  std::ostringstream text_;
};

}  // namespace dunlin::nixl

#define NIXL_ERROR ::dunlin::nixl::LogLine()
#define NIXL_WARN ::dunlin::nixl::LogLine()
#define NIXL_ASSERT(condition) assert(condition)
