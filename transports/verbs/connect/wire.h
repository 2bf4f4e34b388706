// The wire format of the verbs transport: the address and the connection messages (both through the
// bootstrap), the private data of the connection manager, and the records of notifications. All
// have fixed sizes, are little-endian, and carry a version where they begin a conversation.
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

// The address of one port of a process.
struct PortAddress {
  // Where librdmacm listens. Empty and 0 if connections are made through the bootstrap.
  std::string ip{};
  std::uint16_t ip_port = 0;
  bool is_infiniband = false;  // false: Ethernet
  std::uint64_t subnet = 0;    // InfiniBand: the high half of its GID
  // The connection manager is to be used even where the bootstrap would do.
  bool prefers_manager = false;
};

// Both ends of a connection know both addresses, and make the same choices by these two functions.
//
// Whether they connect by the connection manager. Within an InfiniBand subnet the manager would ask
// the subnet manager for the path of each connection. A job of N ranks on N hosts has 2 N^2 of
// them, and LID and GID are enough there. On Ethernet the route is found locally.
bool is_by_manager(const PortAddress& one, const PortAddress& other);
// Whether a connection is possible, as far as the addresses tell: not between InfiniBand and
// Ethernet, nor between an IPv4 and an IPv6 address.
bool can_connect(const PortAddress& one, const PortAddress& other);

struct Address {
  // A random number that only the members of the job get, through the bootstrap. Every connection
  // request repeats it. This refuses strangers, and processes that want a former user of the port.
  std::uint64_t token = 0;
  // There is at least one port. The first port carries the lanes, the others carry stripes. Ports
  // with the same index are connected with each other.
  std::vector<PortAddress> ports;
  // The scope of the first port's device; nothing if it has no atomics.
  std::optional<AtomicScope> atomics;

  Bytes encode() const;
  static Result<Address> decode(std::span<const std::byte> bytes);
};

// The connecting end's request, which says whose lane the connection is for.
struct Request {
  std::uint64_t token;   // from the address of the other end
  std::uint32_t source;  // rank
  std::uint8_t version;
  LaneKind lane;
  std::uint8_t is_resumed;  // 1: the lane had a connection, which was lost or given up
  std::uint8_t rail;        // 0: the lane itself; otherwise the number of a rail of the lane

  // `token` is this end's, and `ranks` the job's number of ranks. Bytes behind the request, which
  // providers may add, are ignored. Messages of errors begin with "its request" or "it".
  static Result<Request> decode(std::span<const std::byte> bytes, std::uint64_t token,
                                std::size_t ranks);
};
// The accepting end's answer: where its mailbox is, and how much was taken out of it so far.
struct Answer {
  std::uint64_t mailbox_address;
  std::uint64_t taken;  // notifications, over all connections of this lane
  std::uint32_t mailbox_key;
  std::uint32_t slots;  // slots of the mailbox, each with a receive work request
  std::uint8_t version;
  std::uint8_t reserved[7];

  // Bytes behind the answer are ignored, as by Request::decode().
  static Result<Answer> decode(std::span<const std::byte> bytes);
};
// The connection manager carries 56 bytes from the connecting end over RC, and 196 from the
// accepting end.
static_assert(sizeof(Request) == 16 && std::is_trivially_copyable_v<Request>);
static_assert(sizeof(Answer) == 32 && std::is_trivially_copyable_v<Answer>);

// The immediate by which credits go back.
struct Credit {
  std::uint32_t taken;  // the last 31 bits of the number of notifications that were taken
  // The receiver has more connections than it should, and asks the sender to give this one up when
  // nothing is in progress on it.
  bool asks_to_leave;

  static constexpr std::uint32_t kAsks = 1U << 31;
  static Credit decode(std::uint32_t immediate) {
    return {immediate & ~kAsks, (immediate & kAsks) != 0};
  }
  std::uint32_t encode() const { return (taken & ~kAsks) | (asks_to_leave ? kAsks : 0); }
};

// The address of a queue pair, for the queue pair at the other end.
struct QueuePairPlace {
  std::uint8_t gid[16];
  std::uint32_t queue_pair;
  std::uint32_t first_packet;  // number of the first packet that it sends
  std::uint16_t lid;           // InfiniBand
  std::uint8_t mtu;            // ibv_mtu
};

// A message of mail_connector.h. Each kind fills only the fields that it needs.
enum class MessageKind : std::uint8_t { kRequest, kAnswer, kRefusal, kEnd, kGone };
struct ConnectionMessage {
  MessageKind kind;
  std::uint32_t initiator = 0;  // rank
  std::uint8_t port = 0;        // index, at both ends
  std::uint64_t session = 0;    // the initiator's number for the connection
  bool is_for_initiator = false;
  QueuePairPlace place{};
  std::uint8_t reads = 0;  // outstanding reads that the initiator asks for, or is granted
  std::vector<std::byte> private_data{};  // a Request or an Answer
  bool is_final = false;                  // kRefusal: the sender will refuse any other one, too
  std::uint64_t sender = 0;               // token of the sender's address, set by decode()

  // `target` and `from`: the tokens of the receiver's and the sender's address.
  Bytes encode(std::uint64_t target, std::uint64_t from) const;
  static Result<ConnectionMessage> decode(std::span<const std::byte> bytes, std::uint64_t& target);
};

// A landing note: tells the owner of a region which bytes the put before it has written. Sent only
// for regions whose owner asks for it.
struct Landing {
  std::uint64_t region;  // its number at the owner
  std::uint64_t offset;
  std::uint64_t size;
};

// Cells of a lane that have a number at a time (path/cell_numbers.h). Each takes 24 to 32 bytes at
// either end. More than these cells take turns, which costs records.
inline constexpr std::uint32_t kCellNumbers = 4096;

// A notification in full. A WRITE_WITH_IMM puts it into a slot of the receiver's mailbox; the
// immediate is the cell. Unused bytes of `inline_data` are not sent.
struct Record {
  std::uint64_t sequence;
  std::uint64_t tag;
  std::uint32_t length;
  std::uint16_t inline_size;
  std::uint16_t number;  // the cell's number from now on, for short notifications
  std::byte inline_data[kInlineBytes];

  void set(const Notification& notification, std::uint16_t number_of_cell) {
    sequence = notification.sequence;
    tag = notification.tag;
    length = notification.length;
    inline_size = static_cast<std::uint16_t>(notification.inline_data.size());
    number = number_of_cell;
    if (inline_size != 0) copy_inline(inline_data, notification.inline_data.data(), inline_size);
  }
  void set(const Landing& landing);
  std::size_t wire_size() const { return offsetof(Record, inline_data) + inline_size; }
  // Decodes a record of `size` bytes that arrived for `cell`. Nothing if it is malformed.
  std::optional<Notification> notification(std::uint32_t cell, std::size_t size) const;
  // Decodes a landing note. Nothing if it is malformed.
  std::optional<Landing> landing() const;
};
static_assert(sizeof(Record) == kCacheLine && std::is_trivially_copyable_v<Record>);

// The lane's previous notification for a cell, which a short one continues.
struct CellState {
  std::uint64_t sequence = 0;
  std::uint64_t tag = 0;
};

// A notification in short. It consists of the immediate alone, needs no record, and travels with
// the last bytes that it announces. It names its cell by the number that an earlier record of the
// lane gave it. Its sequence number is `step` more than that of the lane's previous notification
// for the cell, and its tag is the same. It has no inline data. Its length is the number of bytes
// that the WRITE_WITH_IMM wrote if `counts_bytes` is set, otherwise 0.
struct ShortForm {
  std::uint16_t number;
  std::uint32_t step;
  bool counts_bytes;

  // The short form of a notification that announces `bytes` bytes, for the cell with this number,
  // where `last` was the previous one for the cell. Nothing if the notification does not fit into
  // the short form.
  static std::optional<ShortForm> of(const Notification& notification, std::uint16_t number,
                                     const CellState& last, std::uint64_t bytes) {
    const std::uint64_t step = notification.sequence - last.sequence;
    const bool says_more = notification.tag != last.tag || !notification.inline_data.empty() ||
                           (notification.length != 0 && notification.length != bytes);
    if (says_more || notification.sequence < last.sequence || step > kLargestStep)
      return std::nullopt;
    return ShortForm{number, static_cast<std::uint32_t>(step), notification.length != 0};
  }
  // Nothing if the immediate stands for a record or a service.
  static std::optional<ShortForm> decode(std::uint32_t immediate) {
    const std::uint32_t form = immediate & kFormMask;
    if (form != kStepOnly && form != kStepAndBytes) return std::nullopt;
    return ShortForm{static_cast<std::uint16_t>(immediate & kNumberMask),
                     (immediate & ~kFormMask) >> kNumberBits, form == kStepAndBytes};
  }
  std::uint32_t encode() const {
    return (counts_bytes ? kStepAndBytes : kStepOnly) | step << kNumberBits | number;
  }

 private:
  // From the highest bit: two bits for the form, 18 for the step, 12 for the number.
  static constexpr std::uint32_t kStepOnly = 1U << 30;
  static constexpr std::uint32_t kStepAndBytes = 2U << 30;
  static constexpr std::uint32_t kFormMask = 3U << 30;
  static constexpr int kNumberBits = 12;
  static constexpr std::uint32_t kNumberMask = (1U << kNumberBits) - 1;
  static constexpr std::uint32_t kLargestStep = (1U << 18) - 1;
  static_assert(kCellNumbers == kNumberMask + 1);
};

// An immediate without the two bits of a ShortForm stands for a record. Below this number it is the
// cell of a notification, so boards may have that many cells; from this number on it is a service,
// a message of the transport itself.
inline constexpr std::uint32_t kServiceImmediate = 0x3fff'0000;
// A region was deregistered. The `sequence` of the record is the region's number.
inline constexpr std::uint32_t kRevoked = kServiceImmediate + 1;
// The connection is made. The record holds nothing. It is sent where connections may be given up,
// because only then the receiver knows that the sender can be asked to do so.
inline constexpr std::uint32_t kConnected = kServiceImmediate + 3;
// A landing note. The record holds a Landing.
inline constexpr std::uint32_t kLanded = kServiceImmediate + 2;

// Where a region is, for a peer.
struct VerbsDescriptor {
  std::uint64_t id = 0;             // never reused, and not 0
  std::uint64_t address = 0;        // for the device
  std::vector<std::uint32_t> keys;  // by port, 1 to kMostPorts of them
  bool wants_landings = false;      // a put must be followed by a landing note
  bool is_shadow = false;  // the address is that of a shadow, which takes no gets and atomics
  std::optional<std::uint32_t> gpu;  // the owner's number of it; nothing: host memory

  Bytes encode() const;
  static Result<VerbsDescriptor> decode(std::span<const std::byte> bytes);
};

}  // namespace dunlin::transport::verbs
