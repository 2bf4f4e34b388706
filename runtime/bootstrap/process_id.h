// ProcessId: names a process beyond its host, and watches for its end where that is possible.
//
// A pidfd tells of the end of a process in the same pid namespace of the same kernel. The start
// time tells a process from a later one with the same number.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::bootstrap {

struct ProcessId {
  std::string space;  // the kernel's boot id and the pid namespace; empty: nobody can watch it
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // as in /proc/PID/stat, in clock ticks after the kernel's start

  static ProcessId of_self();
  // Text such as "5a6e...-4026531836/4711/39275".
  std::string to_string() const;
  static Result<ProcessId> parse(std::string_view text);
  bool is_in_space_of(const ProcessId& other) const {
    return !space.empty() && space == other.space;
  }
  // The part of `space` that names the kernel; empty: not known.
  std::string_view kernel() const;
};

// What can be learned of a process.
struct ProcessWatch {
  enum class State : std::uint8_t { kUnknown, kAlive, kEnded };
  State state = State::kUnknown;
  Fd pidfd;  // of kAlive: readable when the process has ended
};
// Never blocks. kUnknown if the process is in another space, or if no descriptor is left.
ProcessWatch watch_process(const ProcessId& process);

}  // namespace dunlin::bootstrap
