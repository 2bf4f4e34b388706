// Frames: the contents of one message between neighbors (wire.h). A frame is a sequence of parts,
// each a Header and the bytes behind it. Parts of several calls share a frame where that saves
// messages (fusion; BlueFog, section VI-C). A part begins at a multiple of 8 bytes, so that its
// numbers are aligned in the slot. The last part has no fill behind it.
//
// A receiver checks the whole frame first, so that a damaged message takes no effect at all. Owner
// thread only.
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

// The size in a message of a part with `behind` bytes behind its header, fill included.
constexpr std::size_t part_bytes(std::size_t behind) {
  constexpr std::size_t kAligned = 8;
  return sizeof(Header) + (behind + kAligned - 1) / kAligned * kAligned;
}

// A message that is being composed. The parts' bytes stay where they are until it is sent.
class Frame {
 public:
  void clear();
  void add(const Part& part);
  std::size_t size() const { return parts_.size(); }
  // Size of the message, with the fill of all parts.
  std::size_t bytes() const { return bytes_; }
  // The pieces to send, in order. Valid until the next clear() or add().
  std::span<const std::span<const std::byte>> pieces();

 private:
  std::vector<Part> parts_;
  std::vector<std::span<const std::byte>> pieces_;
  std::size_t bytes_ = 0;
};

// kCorrupted, with the position, if the message is not a sequence of parts.
Status check_frame(std::span<const std::byte> message);

// Removes the next part from the front of `rest`, which is not empty and the rest of a message that
// has passed check_frame().
Part take_part(std::span<const std::byte>& rest);

}  // namespace dunlin::collective::neighbor
