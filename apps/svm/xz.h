// Unpacks xz streams with liblzma. Stateless; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace dunlin::svm {

bool is_xz(std::string_view bytes);

// Unpacks all concatenated streams of `packed` and verifies their checksums. kCorrupted when a
// stream is damaged or cut short, kUnavailable in a build without liblzma; other errors as unpack()
// (unpack.h).
Result<std::vector<char>> unpack_xz(std::string_view packed);

}  // namespace dunlin::svm
