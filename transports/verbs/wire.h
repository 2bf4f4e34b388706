// What travels between two verbs transports: the address and the letters about connections (through
// the bootstrap), the private data of the connection manager, and the records of notifications.
// Fixed sizes, little-endian, versioned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/bytes.h"
#include "runtime/rank.h"
#include "runtime/status.h"
#include "transports/notification.h"
#include "transports/remote_access.h"
#include "transports/transport.h"

namespace dunlin::transport::verbs {

// Of one port of a process.
struct PortAddress {
  // Of librdmacm's listener; empty and 0: connections go through the bootstrap.
  std::string ip{};
  std::uint16_t ip_port = 0;
  bool is_infiniband = false;  // else Ethernet
};

struct Address {
  // Random; only who got it through the bootstrap knows it, and every connection request repeats
  // it: strangers, and processes that mean a former owner of the port, are refused.
  std::uint64_t token = 0;
  // At least one, which carries the lanes; those behind it are for stripes. Ports of the same index
  // are connected with one another.
  std::vector<PortAddress> ports;
  // Of the first port's device; nothing: it has no atomics.
  std::optional<AtomicScope> atomics;

  Bytes encode() const;
  static Result<Address> decode(std::span<const std::byte> bytes);
};

// What the connecting side tells: who it is.
struct Request {
  std::uint64_t token;   // the listener's
  std::uint32_t source;  // rank
  std::uint8_t version;
  LaneKind lane;
  std::uint8_t is_resumed;  // a connection of this lane was lost
  std::uint8_t rail;        // 0: the lane itself; else one that carries stripes for it
};
// What the accepting side answers: where its mailbox is, and what has come out of it so far.
struct Answer {
  std::uint64_t mailbox_address;
  std::uint64_t taken;  // notifications, over all connections of this lane
  std::uint32_t mailbox_key;
  std::uint32_t slots;  // of the mailbox, and receive work requests posted
  std::uint8_t version;
  std::uint8_t reserved[7];
};
// The connection manager takes 56 bytes from who connects over RC, 196 from who accepts.
static_assert(sizeof(Request) == 16 && std::is_trivially_copyable_v<Request>);
static_assert(sizeof(Answer) == 32 && std::is_trivially_copyable_v<Answer>);

// Where a queue pair is, for the other end's.
struct QueuePairPlace {
  std::uint8_t gid[16];
  std::uint32_t queue_pair;
  std::uint32_t first_packet;  // number of the first that it sends
  std::uint16_t lid;           // InfiniBand
  std::uint8_t mtu;            // ibv_mtu
};

// What mail_connector.h sends. Only what its kind needs is filled in.
enum class LetterKind : std::uint8_t { kRequest, kAnswer, kRefusal, kEnd, kFarewell };
struct ConnectionLetter {
  LetterKind kind;
  std::uint32_t initiator = 0;  // rank
  std::uint8_t port = 0;        // index, at both ends
  std::uint64_t session = 0;    // the initiator's number for it
  bool is_for_initiator = false;
  QueuePairPlace place{};
  std::uint8_t reads = 0;                 // that the initiator wants, or may have, on the way
  std::vector<std::byte> private_data{};  // a Request, or an Answer
  bool is_final = false;                  // kRefusal: of any other connection, too
  std::uint64_t sender = 0;               // token of the address; decode() tells

  // `target`: token of the address that it is for.
  Bytes encode(std::uint64_t target, std::uint64_t from) const;
  static Result<ConnectionLetter> decode(std::span<const std::byte> bytes, std::uint64_t& target);
};

// Tells the owner of a region that asked for it what a put behind which it stands has written.
struct Landing {
  std::uint64_t region;  // its number
  std::uint64_t offset;
  std::uint64_t size;
};

// A notification in full: lands in a slot of the receiver's mailbox by WRITE_WITH_IMM, whose
// immediate is the cell. `inline_data` is cut off behind what is used.
struct Record {
  std::uint64_t sequence;
  std::uint64_t tag;
  std::uint32_t length;
  std::uint32_t inline_size;
  std::byte inline_data[kInlineBytes];

  void set(const Notification& notification) {
    sequence = notification.sequence;
    tag = notification.tag;
    length = notification.length;
    inline_size = static_cast<std::uint32_t>(notification.inline_data.size());
    if (inline_size != 0) copy_inline(inline_data, notification.inline_data.data(), inline_size);
  }
  void set(const Landing& landing);
  std::size_t wire_size() const { return offsetof(Record, inline_data) + inline_size; }
  // For a record of `size` bytes that arrived for `cell`; nothing when that is no record.
  std::optional<Notification> notification(std::uint32_t cell, std::size_t size) const;
  // Nothing when that is none.
  std::optional<Landing> landing() const;
};
static_assert(sizeof(Record) == kCacheLine && std::is_trivially_copyable_v<Record>);

// A notification in short: the immediate says it all, so that it needs no record, and travels with
// the last bytes that it announces. Its sequence is that of the notification before it (of this
// lane, for this cell; 0 before the first) plus `step`; no tag, no inline data. `counts_bytes`: its
// length is what the WRITE_WITH_IMM wrote; else 0.
struct ShortForm {
  std::uint32_t cell;
  std::uint32_t step;
  bool counts_bytes;

  // Nothing where the notification, behind `last` and with `bytes` to announce, has more to say.
  static std::optional<ShortForm> of(const Notification& notification, std::uint64_t last,
                                     std::uint64_t bytes) {
    const auto cell = static_cast<std::uint32_t>(notification.id);
    const std::uint64_t step = notification.sequence - last;
    const bool says_more = notification.tag != 0 || !notification.inline_data.empty() ||
                           (notification.length != 0 && notification.length != bytes);
    if (says_more || notification.sequence < last || step > kLargestStep || cell > kCellMask)
      return std::nullopt;
    return ShortForm{cell, static_cast<std::uint32_t>(step), notification.length != 0};
  }
  // Nothing where the immediate stands for a record or a service.
  static std::optional<ShortForm> decode(std::uint32_t immediate) {
    const std::uint32_t form = immediate & kFormMask;
    if (form != kStepOnly && form != kStepAndBytes) return std::nullopt;
    return ShortForm{immediate & kCellMask, (immediate & ~kFormMask) >> kCellBits,
                     form == kStepAndBytes};
  }
  std::uint32_t encode() const {
    return (counts_bytes ? kStepAndBytes : kStepOnly) | step << kCellBits | cell;
  }

 private:
  // Two bits of what it is, the step, the cell.
  static constexpr std::uint32_t kStepOnly = 1U << 30;
  static constexpr std::uint32_t kStepAndBytes = 2U << 30;
  static constexpr std::uint32_t kFormMask = 3U << 30;
  static constexpr int kCellBits = 16;
  static constexpr std::uint32_t kCellMask = (1U << kCellBits) - 1;
  static constexpr std::uint32_t kLargestStep = (1U << 14) - 1;
};

// Immediates: 30 bits of a cell, or from here on a message of the transport itself, both with a
// record; ShortForms have one of the upper two bits set.
inline constexpr std::uint32_t kServiceImmediate = 0x3fff'0000;
// `sequence` of the record: the number of a region that is no longer registered.
inline constexpr std::uint32_t kRevoked = kServiceImmediate + 1;
// The record holds a Landing.
inline constexpr std::uint32_t kLanded = kServiceImmediate + 2;

}  // namespace dunlin::transport::verbs
