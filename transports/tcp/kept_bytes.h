// KeptBytes: the copies of small payloads, which a lane keeps until the peer has acknowledged them.
// The copies are freed in the order in which they were made. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "transports/tcp/constants.h"

namespace dunlin::transport::tcp {

class KeptBytes {
 public:
  // Returns the copy, or null if there is no room for it.
  const std::byte* keep(std::span<const std::byte> bytes) {
    std::uint64_t begin = end_;
    const std::size_t place = begin % kKeptBytes;
    if (kKeptBytes - place < bytes.size()) begin += kKeptBytes - place;  // a copy does not wrap
    if (begin + bytes.size() - freed_ > kKeptBytes) return nullptr;
    if (!room_) room_ = std::make_unique_for_overwrite<std::byte[]>(kKeptBytes);
    std::byte* const copy = room_.get() + begin % kKeptBytes;
    std::memcpy(copy, bytes.data(), bytes.size());
    end_ = begin + bytes.size();
    return copy;
  }
  // A mark behind the last copy.
  std::uint64_t mark() const { return end_; }
  // Frees all copies up to the mark.
  void free_up_to(std::uint64_t mark) { freed_ = mark; }

 private:
  std::unique_ptr<std::byte[]> room_;
  std::uint64_t end_ = 0;  // positions only grow; they are places in `room_` modulo its size
  std::uint64_t freed_ = 0;
};

}  // namespace dunlin::transport::tcp
