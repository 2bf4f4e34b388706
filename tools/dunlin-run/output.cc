#include "tools/dunlin-run/output.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace dunlin::run {
namespace {

// Longer lines are cut into pieces, so that a program that never ends its line takes no memory.
constexpr std::size_t kMaxLine = std::size_t{1} << 20;

void write_all(int target, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(target, text.data(), text.size());
    if (put < 0 && errno != EINTR) return;  // nobody reads it any more
    if (put > 0) text.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace

LineRelay::LineRelay(Fd source, int target, std::string prefix)
    : source_(std::move(source)), target_(target), prefix_(std::move(prefix)) {}

void LineRelay::pass_on(std::string_view line) {
  ready_ += prefix_;
  ready_ += line;
  ready_ += '\n';
}

void LineRelay::relay() {
  if (!source_.is_open()) return;
  std::array<char, 64 << 10> chunk;
  ssize_t got = 0;
  // One chunk per call: a chatty rank does not keep the others waiting.
  do got = read(source_.get(), chunk.data(), chunk.size());
  while (got < 0 && errno == EINTR);
  const bool is_end = got == 0 || (got < 0 && errno != EAGAIN);
  if (got > 0) pending_.append(chunk.data(), static_cast<std::size_t>(got));

  std::size_t begin = 0;
  for (std::size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    pass_on(std::string_view(pending_).substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  if (pending_.size() >= kMaxLine || (is_end && !pending_.empty())) {
    pass_on(std::exchange(pending_, {}));
  }
  write_all(target_, std::exchange(ready_, {}));
  if (is_end) source_.reset();
}

}  // namespace dunlin::run
