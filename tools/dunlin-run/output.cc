#include "tools/dunlin-run/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace dunlin::run {
namespace {

// Longer lines are cut into pieces, so that a line without an end takes no more memory than this.
constexpr std::size_t kMaxLine = std::size_t{1} << 20;

// poll() promises room for so many bytes in a pipe: a write of no more does not block.
constexpr std::size_t kPiece = PIPE_BUF;

bool has_room(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, 0) > 0;
}

// A write to a terminal blocks when its user has stopped the output, whatever poll() promised.
// Other programs share the mode of the descriptor, so that this one opens the terminal anew for
// itself.
Fd open_anew(int target) {
  if (isatty(target) == 0) return Fd();
  const std::string path = fmt::format("/proc/self/fd/{}", target);
  return Fd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

OutputSink::OutputSink(int target)
    : terminal_(open_anew(target)), target_(terminal_.is_open() ? terminal_.get() : target) {}

void OutputSink::flush() {
  while (has_text() && has_room(target_)) {
    const std::string_view rest = std::string_view(text_).substr(written_, kPiece);
    const ssize_t put = write(target_, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) return;
    const bool has_no_reader =
        errno == EPIPE || errno == ECONNRESET || (errno == EIO && terminal_.is_open());
    if (put < 0 && !has_no_reader && error_ == 0) error_ = errno;
    written_ = put < 0 ? text_.size() : written_ + static_cast<std::size_t>(put);
  }
  // So that the text does not grow while its reader never catches up.
  if (has_text() && written_ < kMostText) return;
  text_.erase(0, written_);
  written_ = 0;
}

LineRelay::LineRelay(Fd source, OutputSink& sink, std::string prefix, bool keeps_json)
    : source_(std::move(source)),
      sink_(&sink),
      prefix_(std::move(prefix)),
      keeps_json_(keeps_json) {}

void LineRelay::pass_on(std::string_view line) {
  const bool is_json = line.starts_with('{') && line.ends_with('}');
  if (!(keeps_json_ && is_json)) sink_->append(prefix_);
  sink_->append(line);
  sink_->append("\n");
}

void LineRelay::relay() {
  if (!source_.is_open()) return;
  std::array<char, 64 << 10> chunk;
  ssize_t got = 0;
  // One chunk per call, so that a rank with much output does not delay the output of others.
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
  if (is_end) source_.reset();
}

}  // namespace dunlin::run
