// Starting one process: fork and exec with its own process group, output pipes and CPU set.
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

// The file that a shell would run for `program`; an error says where it was looked for.
Result<std::string> find_program(const std::string& program, const Environment& environment);

struct ChildSpec {
  std::string path;
  std::vector<std::string> arguments;  // the first is the program's name
  Environment environment;
  std::optional<cpu_set_t> cpus;
};

struct Child {
  pid_t pid = 0;  // also its process group
  Fd out;         // non-blocking reading ends
  Fd err;
};

// The child reads nothing (/dev/null) and dies with the calling thread. A failing exec is an error
// here, not an exit of the child.
Result<Child> start_child(const ChildSpec& spec);

}  // namespace dunlin::run
