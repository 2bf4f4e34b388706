#include "runtime/bootstrap/process_id.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "runtime/config.h"
#include "runtime/process_stat.h"
#include "runtime/topology.h"

namespace dunlin::bootstrap {
namespace {

// 0: there is no such process.
std::uint64_t start_time_of(pid_t pid) {
  constexpr int kFieldsBefore = 19;  // between the program's name and the start time
  std::istringstream fields(process_stat(pid));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  std::uint64_t time = 0;
  fields >> time;
  return time;
}

std::string own_space() {
  const std::string kernel = host_identity("");
  struct stat pids {};
  if (kernel.empty() || stat("/proc/self/ns/pid", &pids) != 0) return "";
  return fmt::format("{}-{}", kernel, pids.st_ino);
}

}  // namespace

ProcessId ProcessId::of_self() {
  return {own_space(), getpid(), start_time_of(getpid())};
}

std::string ProcessId::to_string() const {
  return fmt::format("{}/{}/{}", space, pid, start_time);
}

std::string_view ProcessId::kernel() const {
  const auto end = space.rfind('-');
  return end == std::string::npos ? std::string_view() : std::string_view(space).substr(0, end);
}

Result<ProcessId> ProcessId::parse(std::string_view text) {
  const auto first = text.find('/');
  const auto second = first == std::string_view::npos ? first : text.find('/', first + 1);
  if (second == std::string_view::npos)
    return Status(Code::kCorrupted, "a process is not named as SPACE/PID/START");
  const auto pid = parse_integer(text.substr(first + 1, second - first - 1));
  const auto start = parse_integer(text.substr(second + 1));
  if (!pid || !start || *pid < 0 || *pid > INT32_MAX || *start < 0)
    return Status(Code::kCorrupted, "a process is not named as SPACE/PID/START");
  return ProcessId{std::string(text.substr(0, first)), static_cast<pid_t>(*pid),
                   static_cast<std::uint64_t>(*start)};
}

ProcessWatch watch_process(const ProcessId& process) {
  using State = ProcessWatch::State;
  static const std::string kSpace = own_space();
  if (process.space.empty() || process.space != kSpace || process.pid <= 0)
    return {State::kUnknown, {}};
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd.is_open()) return {errno == ESRCH ? State::kEnded : State::kUnknown, {}};
  // The descriptor names whatever process has the number now; it keeps it if it is the right one.
  const std::uint64_t start = start_time_of(process.pid);
  if (start != 0 && start != process.start_time) return {State::kEnded, {}};
  pollfd entry{pidfd.get(), POLLIN, 0};
  if (poll(&entry, 1, 0) == 1) return {State::kEnded, {}};
  return {State::kAlive, std::move(pidfd)};
}

}  // namespace dunlin::bootstrap
