// The messages of the tcp transport: those of a lane, and the answers to them, on the way back.
// They travel in frames (frame.h), are little-endian and have fixed sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "runtime/bytes.h"
#include "runtime/status.h"
#include "transports/notification.h"
#include "transports/tcp/constants.h"

namespace dunlin::transport::tcp {

enum class MessageKind : std::uint8_t {
  kPut = 1,     // bytes for a region
  kNotify = 2,  // a notification, with or without bytes for a region
  kFlush = 3,   // only asks for an acknowledgment
  kRead = 4,    // asks for bytes of a region
  kJoin = 5,    // the lane goes on over a connection that the peer's lane has made, see join()
};

enum MessageFlags : std::uint8_t {
  kWantsAck = 1,        // an operation waits for the acknowledgment
  kPayloadFollows = 2,  // the bytes are in the frames behind this one, not in this message
  kIsRepeated = 4,      // a read whose answer was lost with an earlier connection
};

// Where a lane comes from, and which of its connections this is.
struct Origin {
  std::uint64_t token = 0;        // random number of the lane's transport
  std::uint64_t incarnation = 0;  // grows with the lanes that the transport makes
  std::uint64_t attempt = 0;      // grows with the connections that its lanes make, or join
  std::uint32_t depth = 0;        // operations that the lane may have outstanding
};

// The header of a lane's message. The bytes of `inline_data` that are used follow it, then those of
// the put.
struct MessageHeader {
  std::uint64_t order;   // grows with every message of the lane
  std::uint64_t seen;    // the last acknowledgment that the sender has got
  std::uint64_t region;  // 0 if no region takes part
  std::uint64_t offset;
  std::uint64_t size;      // bytes that are put or read
  std::uint64_t sequence;  // of the notification, as the following fields
  std::uint64_t tag;
  std::uint32_t cell;
  std::uint32_t length;
  MessageKind kind;
  std::uint8_t flags;
  std::uint8_t inline_size;
  std::uint8_t reserved[5];

  bool has(MessageFlags flag) const { return (flags & flag) != 0; }
  // Bytes of a put that are in the message itself.
  std::size_t size_within() const {
    return kind == MessageKind::kRead || has(kPayloadFollows) ? 0 : size;
  }
  std::size_t wire_size() const { return sizeof *this + inline_size + size_within(); }

  // The header of a kJoin, whose order is 0, and what it says.
  static MessageHeader join(const Origin& origin);
  Origin origin() const { return {region, offset, sequence, length}; }
};
static_assert(sizeof(MessageHeader) == 72 && std::is_trivially_copyable_v<MessageHeader>);

// A message as it lies in its frame.
struct Message {
  MessageHeader header;
  std::span<const std::byte> inline_data;
  std::span<const std::byte> within;

  Notification notification() const {
    return {NotifyId{header.cell}, header.sequence, header.tag, header.length, inline_data};
  }
  // Takes the first message off the frame. Returns nullopt if the bytes are not a valid message.
  static std::optional<Message> take(std::span<const std::byte>& frame);
};

enum class AnswerKind : std::uint8_t {
  kAcknowledged = 1,  // all messages up to `order` have been carried out
  kRejected = 2,      // message `order` was refused for the reason `code`
  kRead = 3,          // `size` bytes that the message `order` asked for follow
  kRevoked = 4,       // `region` is no longer registered
  kClosing = 5,       // the sender closes its end for good
  kBegin = 6,         // what follows answers the lane's connection `region` (Origin::attempt)
};

struct AnswerHeader {
  std::uint64_t order;
  std::uint64_t region;
  std::uint64_t size;
  AnswerKind kind;
  std::uint8_t code;
  std::uint8_t reserved[6];
};
static_assert(sizeof(AnswerHeader) == 32 && std::is_trivially_copyable_v<AnswerHeader>);
static_assert(sizeof(AnswerHeader) + kReadPiece <= kFrameBytes);

struct Answer {
  AnswerHeader header;
  std::span<const std::byte> bytes;

  static std::optional<Answer> take(std::span<const std::byte>& frame);
};

// Names a region to peers. Its number is never reused, and not 0.
struct TcpDescriptor {
  std::uint64_t id = 0;

  Bytes encode() const;
  static Result<TcpDescriptor> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::transport::tcp
