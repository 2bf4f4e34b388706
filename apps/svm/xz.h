// Unpacks xz streams with liblzma. Stateless; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace dunlin::svm {

bool is_xz(std::string_view bytes);

// All concatenated streams of `packed`, with their checks verified; kCorrupted when one is broken
// or cut short, kUnavailable in a build without liblzma; other errors as unpack() (unpack.h).
Result<std::vector<char>> unpack_xz(std::string_view packed);

}  // namespace dunlin::svm
