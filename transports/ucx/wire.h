// What travels between two ucx transports: the address (through the bootstrap), messages of lanes
// and messages of the transports themselves. Fixed sizes, little-endian, versioned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/notification.h"
#include "transports/transport.h"
#include "transports/ucx/constants.h"

namespace dunlin::transport::ucx {

struct Address {
  // Random; only who got it through the bootstrap knows it, and every message repeats it. A process
  // that finds itself at a reused port, or a stranger, is told apart by it.
  std::uint64_t token = 0;
  std::uint64_t cells = 0;  // of the notification board
  Bytes worker[kLaneKinds];

  Bytes encode() const;
  static Result<Address> decode(std::span<const std::byte> bytes);
};

enum class MessageKind : std::uint8_t {
  kPut = 1,     // bytes for a region
  kNotify = 2,  // a notification, with or without bytes for a region
  kFlush = 3,   // to be answered once everything before it is visible
  kRead = 4,    // to be answered with a region's bytes, at most kReadLimit, once it is its turn
};

// Header of a lane's active message; the bytes of a put are its payload. `inline_data` is cut off
// behind what is used.
struct MessageHeader {
  std::uint64_t token;   // the receiver's
  std::uint64_t order;   // 1, 2, 3, ... on its lane
  std::uint64_t region;  // 0: no region takes part
  std::uint64_t offset;
  std::uint64_t size;  // of what was put there, in this message or by RMA before it; or is read
  std::uint64_t sequence;
  std::uint64_t tag;
  std::uint32_t source;  // the sender's rank
  std::uint32_t cell;
  std::uint32_t length;
  std::uint8_t version;
  MessageKind kind;
  std::uint8_t inline_size;
  std::uint8_t reserved;
  std::byte inline_data[kInlineBytes];

  std::size_t wire_size() const { return offsetof(MessageHeader, inline_data) + inline_size; }
  Notification notification() const {
    return {NotifyId{cell}, sequence, tag, length, {inline_data, inline_size}};
  }
  void set_notification(const Notification& notification);
  // Nothing when the bytes are no such header.
  static std::optional<MessageHeader> parse(const void* bytes, std::size_t size);
};
static_assert(sizeof(MessageHeader) == 72 + kInlineBytes &&
              std::is_trivially_copyable_v<MessageHeader>);

enum class ServiceKind : std::uint8_t {
  kHello = 1,     // payload: the sender's Address; answers can be sent from now on
  kFlushed = 2,   // `order`: of the flush
  kRejected = 3,  // `order` on `lane` was not carried out: `code`
  kRevoked = 4,   // `region` is no longer registered
  kGoodbye = 5,   // nothing more comes on `lane`, and that its endpoint ends is no accident
  kFarewell = 6,  // the good-bye has been heard
  kRead = 7,      // payload: what the read `order` on `lane` asked for
};

struct ServiceHeader {
  std::uint64_t token;
  std::uint64_t order;
  std::uint64_t region;
  std::uint32_t source;
  std::uint8_t version;
  ServiceKind kind;
  LaneKind lane;
  Code code;

  static std::optional<ServiceHeader> parse(const void* bytes, std::size_t size);
};
static_assert(sizeof(ServiceHeader) == 32 && std::is_trivially_copyable_v<ServiceHeader>);

}  // namespace dunlin::transport::ucx
