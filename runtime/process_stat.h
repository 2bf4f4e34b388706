// What /proc says about a process.
#pragma once

#include <sys/types.h>

#include <string>

namespace dunlin {

// The fields of /proc/PID/stat behind the name of the program, which may itself contain any
// character: "S 1 ...", the state and the parent first (proc(5)). Empty if there is no such
// process, or if it ends during the call. Any thread.
std::string process_stat(pid_t pid);

}  // namespace dunlin
