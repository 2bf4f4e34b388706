#include "tools/lib/progress.h"

#include <unistd.h>

#include "runtime/print.h"

namespace dunlin::tools {
namespace {

constexpr const char* kClearLine = "\r\033[K";

}  // namespace

Progress::Progress(const Clock& clock)
    : Progress(clock, isatty(STDERR_FILENO) == 1 ? stderr : nullptr) {}

Progress::~Progress() {
  if (has_line_) (void)print(kClearLine, stream_);
}

void Progress::show(const std::function<std::string()>& describe) {
  if (stream_ == nullptr || clock_.now() < next_) return;
  has_line_ = true;
  (void)print(kClearLine + describe(), stream_);
  next_ = clock_.now() + kInterval;
}

}  // namespace dunlin::tools
