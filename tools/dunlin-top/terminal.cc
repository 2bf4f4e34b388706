#include "tools/dunlin-top/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "runtime/print.h"

namespace dunlin::top {
namespace {

constexpr const char* kEnterAlternate = "\x1b[?1049h\x1b[?25l";
constexpr const char* kLeaveAlternate = "\x1b[?25h\x1b[?1049l";
constexpr const char* kHome = "\x1b[H";
constexpr const char* kClearLine = "\x1b[K";
constexpr const char* kClearRest = "\x1b[J";

}  // namespace

Result<Terminal> Terminal::open() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&signals, each);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  Fd fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.is_open()) return Status::from_errno("signalfd", errno);
  return Terminal(std::move(fd));
}

Terminal::Terminal(Fd signals)
    : signals_(std::move(signals)), is_terminal_(isatty(STDOUT_FILENO) == 1) {}

Terminal::~Terminal() {
  if (!signals_.is_open() || !is_alternate_) return;  // moved from, or nothing to restore
  (void)print(kLeaveAlternate + last_);
}

ScreenSize Terminal::size() const {
  winsize window{};
  if (!is_terminal_ || ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return {};
  return {window.ws_col, window.ws_row, true};
}

Status Terminal::show(const std::string& text) {
  const std::string before = std::exchange(last_, text);
  if (!is_terminal_) {
    if (before == text) return Status::ok();
    return print(before.empty() ? text : "\n" + text);
  }
  // Lines are overwritten in place, so that nothing flickers.
  std::string frame = is_alternate_ ? kHome : std::string(kEnterAlternate) + kHome;
  is_alternate_ = true;
  for (const char each : text) {
    if (each == '\n') frame += kClearLine;
    frame += each;
  }
  return print(frame + kClearRest);
}

bool Terminal::pause(Duration time) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time);
  pollfd entry{signals_.get(), POLLIN, 0};
  (void)poll(&entry, 1, static_cast<int>(left.count()));
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGWINCH) return false;
  }
  return true;
}

}  // namespace dunlin::top
