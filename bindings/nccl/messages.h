// The messages between the two ends of a comm. One that announces a single receive, and one that
// says that data has arrived, fit into a notification's cache line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/bytes.h"

namespace dunlin::nccl {

// Receives that NCCL may group in one call.
inline constexpr std::size_t kMaxGroup = 8;

// A buffer in which the receiver awaits a message with this tag.
struct Buffer {
  std::uint64_t memory = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
};

struct Message {
  enum class Kind : std::uint8_t {
    kReceive,  // from the receiver: it awaits data in these buffers
    kForget,   // from the receiver: it has deregistered this memory
    kArrived,  // from the sender: a buffer has this many bytes now
    kRefused,  // from the sender: the buffer is too small for this many bytes
  };
  Kind kind = Kind::kReceive;
  std::uint8_t index = 0;            // of the buffer among those of the receive
  std::uint16_t receive = 0;         // the place of the receiver's request
  std::uint64_t number = 0;          // bytes, or the memory
  std::vector<Buffer> buffers = {};  // of kReceive only

  Bytes encode() const;
  // Nothing if the bytes are malformed.
  static std::optional<Message> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::nccl
