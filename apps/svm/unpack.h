// The loop that unpacks input files, whatever they are packed with (gzip.h, xz.h). Stateless; any
// thread.
//
// A small file can claim to be a huge one: gzip packs zeros a thousandfold, xz seven thousandfold.
// So what is unpacked is bounded. Who really has such a file unpacks it himself: plain files are
// mapped, and have no bound.
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

// Any file may have so much in it.
inline constexpr std::size_t kAlwaysUnpacked = std::size_t{64} << 20;
// A larger one, so many times its size. Data sets of images have 1 to 5 times, sparse text 3 to 30.
inline constexpr std::size_t kMostTimes = 200;

constexpr std::size_t most_unpacked(std::size_t packed_bytes) {
  return std::max(kAlwaysUnpacked, packed_bytes * kMostTimes);
}

// What one call of a decompressor has come to.
struct UnpackStep {
  std::size_t taken = 0;  // bytes of the input
  std::size_t made = 0;   // bytes of the output
  bool is_over = false;   // nothing follows
};

Status unpacks_to_too_much(std::size_t packed_bytes);

// `step(input, room)` returns a Result<UnpackStep>; it fails where it can neither take nor make
// anything. `times`: how many times as long the output is expected to be. kInvalidArgument: beyond
// most_unpacked(); kResourceExhausted: no memory.
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
      // One more than may be filled shows that there is more.
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
