// The loop that unpacks input files of any compression (gzip.h, xz.h). Stateless; any thread.
//
// A small file can unpack to a huge one: gzip packs zeros a thousandfold, xz seven thousandfold.
// Therefore the unpacked size is bounded. Larger files have to be unpacked beforehand: plain files
// are mapped and have no bound.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/status.h"

namespace dunlin::svm {

// Every file may unpack to this many bytes.
inline constexpr std::size_t kAlwaysUnpacked = std::size_t{64} << 20;
// A larger file may unpack to this many times its size. Data sets of images have 1 to 5 times,
// sparse text has 3 to 30 times.
inline constexpr std::size_t kMostTimes = 200;

constexpr std::size_t most_unpacked(std::size_t packed_bytes) {
  return std::max(kAlwaysUnpacked, packed_bytes * kMostTimes);
}

// What one call of a decompressor did.
struct UnpackStep {
  std::size_t taken = 0;  // bytes of the input that were consumed
  std::size_t made = 0;   // bytes of the output that were written
  bool is_over = false;   // the stream has ended
};

Status unpacks_to_too_much(std::size_t packed_bytes);

// `step(input, room)` returns a Result<UnpackStep>, and fails if it can neither consume nor write
// anything. `times` is the expected ratio of output to input. kInvalidArgument beyond
// most_unpacked(); kResourceExhausted without memory.
template <typename Step>
Result<std::vector<char>> unpack(std::string_view packed, std::size_t times, Step&& step) {
  const std::size_t packed_bytes = packed.size();
  const std::size_t most = most_unpacked(packed_bytes);
  std::vector<char> unpacked;
  std::size_t size = 0;
  UnpackStep last;
  try {
    unpacked.resize(packed_bytes * times + 4096);
    while (!last.is_over) {
      // One byte more than allowed shows that there is more.
      if (size == unpacked.size()) unpacked.resize(std::min(size * 2, most + 1));
      DUNLIN_ASSIGN(last, step(packed, std::span(unpacked).subspan(size)));
      packed.remove_prefix(last.taken);
      size += last.made;
      if (size > most) return unpacks_to_too_much(packed_bytes);
    }
    unpacked.resize(size);
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted, "no memory left to unpack it");
  }
  return unpacked;
}

}  // namespace dunlin::svm
