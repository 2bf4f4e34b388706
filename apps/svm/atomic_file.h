// Replaces a file as a whole. Stateless; one thread at a time for each path.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/status.h"

namespace dunlin::svm {

// Makes `path` hold exactly `bytes`, also after a power failure. On failure, or when the process is
// killed meanwhile, the file keeps its former content. Writes to "<path>.partial" beside it.
Status replace_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace dunlin::svm
