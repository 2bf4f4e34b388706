// Unpacks gzip streams with zlib. Stateless; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace dunlin::svm {

bool is_gzip(std::string_view bytes);

// Unpacks all concatenated members of `packed` and verifies their checksums. kCorrupted when a
// member is damaged or cut short, kUnavailable in a build without zlib; other errors as unpack()
// (unpack.h).
Result<std::vector<char>> unpack_gzip(std::string_view packed);

}  // namespace dunlin::svm
