// Files that are read. Stateless. Any thread.
#pragma once

#include <string>

#include "runtime/fd.h"
#include "runtime/status.h"

namespace dunlin {

// Opens a regular file for reading. Anything else is an error at once (kInvalidArgument): a FIFO or
// a terminal would make the program wait, and a device may have no end.
Result<Fd> open_input(const std::string& path);

// The content of a regular file.
Result<std::string> read_file(const std::string& path);

}  // namespace dunlin
