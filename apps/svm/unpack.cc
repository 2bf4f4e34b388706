#include "apps/svm/unpack.h"

#include <fmt/format.h>

namespace dunlin::svm {

Status unpacks_to_too_much(std::size_t packed_bytes) {
  return {
      Code::kInvalidArgument,
      fmt::format("its {} bytes unpack to more than {} ({} MiB, or {} times as many, may be in "
                  "a packed file). Unpack it beforehand if this is intended",
                  packed_bytes, most_unpacked(packed_bytes), kAlwaysUnpacked >> 20, kMostTimes)};
}

}  // namespace dunlin::svm
