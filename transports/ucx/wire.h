// The wire format of the ucx transport: the address (through the bootstrap), messages of lanes, and
// service messages of the transports themselves. All have fixed sizes, are little-endian, and carry
// a version.
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
  // A random number that only the members of the job get, through the bootstrap. Every message
  // repeats the receiver's token. This refuses strangers, and messages for a former process at the
  // same port.
  std::uint64_t token = 0;
  std::uint64_t cells = 0;  // of the notification board
  Bytes worker[kLaneKinds];

  Bytes encode() const;
  static Result<Address> decode(std::span<const std::byte> bytes);
};

enum class MessageKind : std::uint8_t {
  kPut = 1,     // bytes for a region
  kNotify = 2,  // a notification, with or without bytes for a region
  kFlush = 3,   // asks for an answer once everything before it is visible
  kRead = 4,    // asks for at most kReadLimit bytes of a region, when it is its turn
};

// The header of a lane's active message, whose payload is the bytes of a put. Unused bytes of
// `inline_data` are not sent.
struct MessageHeader {
  std::uint64_t token;   // the receiver's
  std::uint64_t order;   // 1, 2, 3, ... on its lane
  std::uint64_t region;  // 0 if no region takes part
  std::uint64_t offset;
  std::uint64_t size;  // bytes that are put, in this message or by RMA before it, or that are read
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
  // Returns nullopt if the bytes are not a valid header.
  static std::optional<MessageHeader> parse(const void* bytes, std::size_t size);
};
static_assert(sizeof(MessageHeader) == 72 + kInlineBytes &&
              std::is_trivially_copyable_v<MessageHeader>);

enum class ServiceKind : std::uint8_t {
  kHello = 1,                // a greeting; the payload is the sender's Address, for answers
  kFlushed = 2,              // everything before the flush `order` is visible
  kRejected = 3,             // message `order` on `lane` was refused for the reason `code`
  kRevoked = 4,              // `region` is no longer registered
  kClosing = 5,              // the sender closes `lane`, so the end of its endpoint is no failure
  kClosingAcknowledged = 6,  // the sender knows that `lane` is closing
  kRead = 7,                 // the payload is the bytes that the read `order` on `lane` asked for
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

// Where a region is, for a peer.
struct UcxDescriptor {
  std::uint64_t id = 0;  // never reused, and not 0
  std::uint64_t address = 0;
  bool is_kept = false;  // the peer may fetch a put's bytes after the message that announces them
  Bytes key;             // for UCX alone; empty: the region is not exposed to RMA

  Bytes encode() const;
  static Result<UcxDescriptor> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::transport::ucx
