// What one message between neighbours holds (wire.h): parts, one behind the other, each a Header
// and the bytes behind it. Parts of several calls travel together where that saves messages
// (fusion; BlueFog, section VI-C). A part begins at a multiple of 8 bytes, so that its numbers are
// aligned in the slot; after the last one nothing follows.
//
// Owner thread only. Whoever reads checks the whole message first: what is damaged anywhere takes
// no effect at all.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/neighbor/ring.h"
#include "collectives/neighbor/wire.h"
#include "runtime/status.h"

namespace dunlin::collective::neighbor {

struct Part {
  Header header;
  std::span<const std::byte> bytes{};
};

// What a part with so many bytes behind its header takes in a message, fill included.
constexpr std::size_t part_bytes(std::size_t behind) {
  constexpr std::size_t kAligned = 8;
  return sizeof(Header) + (behind + kAligned - 1) / kAligned * kAligned;
}

// A message that is being put together. The parts' bytes stay where they are until it is sent.
class Frame {
 public:
  void clear();
  void add(const Part& part);
  std::size_t size() const { return parts_.size(); }
  // With all parts' fill.
  std::size_t bytes() const { return bytes_; }
  // What is to be sent, in order. Valid until the next clear() or add().
  std::span<const std::span<const std::byte>> pieces();

 private:
  std::vector<Part> parts_;
  std::vector<std::span<const std::byte>> pieces_;
  std::size_t bytes_ = 0;
};

// kCorrupted, with the place: not parts one behind the other.
Status check_frame(std::span<const std::byte> message);

// Takes the next part off the front of `rest`, the rest of a message that check_frame() has found
// right and that isn't empty.
Part take_part(std::span<const std::byte>& rest);

}  // namespace dunlin::collective::neighbor
