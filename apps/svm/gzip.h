// Unpacks gzip streams with zlib. Stateless; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace dunlin::svm {

bool is_gzip(std::string_view bytes);

// All concatenated members of `packed`, with their checks verified; kCorrupted when one is broken
// or cut short, kUnavailable in a build without zlib; other errors as unpack() (unpack.h).
Result<std::vector<char>> unpack_gzip(std::string_view packed);

}  // namespace dunlin::svm
