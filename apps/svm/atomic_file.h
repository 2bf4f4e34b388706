// Replaces a file as a whole. Stateless; one thread at a time for each path.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/status.h"

namespace dunlin::svm {

// Afterwards `path` holds exactly `bytes`, also after a power failure; on failure or when killed in
// between it holds what it held before. Writes to "<path>.partial" beside it.
Status replace_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace dunlin::svm
