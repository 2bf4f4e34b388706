// Starts one process, by fork and exec, with a process group, output pipes and a CPU set of its
// own.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin::run {

// Returns the file that a shell would run for `program`. An error names the folders that were
// searched.
Result<std::string> find_program(const std::string& program, const Environment& environment);

struct ChildSpec {
  std::string path;
  std::vector<std::string> arguments;  // the first is the name of the program
  Environment environment;
  std::optional<cpu_set_t> cpus;
};

struct Child {
  pid_t pid = 0;  // also its process group
  Fd out;         // the reading ends of pipes, non-blocking
  Fd err;
};

// The standard input of the child is /dev/null. The kernel kills the child when the calling thread
// ends. A failing exec is an error of this call, not an exit of the child.
Result<Child> start_child(const ChildSpec& spec);

}  // namespace dunlin::run
