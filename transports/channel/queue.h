// SendQueue and ReceiveQueue: the two ends of a channel, which carries messages from one rank to a
// neighbor. It is the NOTIFY-ACK queue of ASAP, section 4.
//
// The receiver owns `depth` slots of memory (channel/slot_exchange.h). A send takes a credit, puts
// the payload into the receiver's next slot, and notifies the receiver with the message's sequence
// number; both are one operation of the data lane. The receiver polls for the message, reads it in
// the slot, and releases it. The release sends an acknowledgment (ACK) on the control lane: the
// sequence number of the last released message, which covers all messages before it.
//
// The sender has a credit while fewer than `depth` messages are unacknowledged. It never writes to
// a slot whose message was not acknowledged, so a message that poll() returned does not change
// until it is released. Messages arrive in order and exactly once. In host memory, a message of up
// to kInlineBytes travels inside the notification's cache line and does not use its slot. In GPU
// memory, every message uses its slot, and Message::data is an address of the GPU.
//
// No function blocks or reads a clock. kBusy means that there is no credit or that the lane is
// full: progress the fabric and try again. Owner thread only. The exchange must outlive its queues.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transports/channel/slot_exchange.h"
#include "transports/mapped_cells.h"

namespace dunlin::transport {

struct Message {
  std::uint64_t sequence = 0;       // 1, 2, 3, ... on each edge
  std::uint64_t tag = 0;            // as passed to try_send()
  std::span<const std::byte> data;  // valid until the message is released
};

class SendQueue {
 public:
  // SlotExchange::connect() must have succeeded; `edge` is one of exchange.out().
  SendQueue(SlotExchange& exchange, OutSlots& edge);

  // Sends a message. The payload's memory may be reused once `completion` has fired. Returns kBusy
  // if every slot still waits for its ACK, or if the lane is full, and kOutOfRange if the payload
  // is larger than a slot.
  Status try_send(LocalSlice payload, std::uint64_t tag, Completion* completion);
  // Sends a message of at most kInlineBytes from memory that need not be registered. The payload is
  // copied before the call returns. Returns kBusy as try_send() does, and kInvalidArgument if the
  // payload is larger. The slots must be in host memory.
  Status try_send_inline(std::span<const std::byte> payload, std::uint64_t tag);

  // Returns the address of the next message's slot, so that the caller can write the message in
  // place instead of try_send(). Null if this process has not mapped the slot or has no credit.
  std::byte* mapped_slot() const;
  // Sends the `size` bytes that the caller has written to mapped_slot(). It does not check for a
  // credit: the caller must have got a slot from mapped_slot() since its last send. Returns
  // kOutOfRange unless `size` is more than kInlineBytes and at most that of a slot, and kBusy if
  // the lane is full.
  Status announce(std::size_t size, std::uint64_t tag);

  Rank peer() const { return edge_.to; }
  std::uint64_t sent() const { return sent_; }
  // The number of messages that the receiver has released.
  std::uint64_t acknowledged() const;
  bool has_credit() const { return sent_ - acknowledged() < depth_; }

 private:
  Notification notification(std::uint64_t tag, std::size_t size) const;
  Status sent(Status status);

  NotifyBoard& board_;
  OutSlots& edge_;
  Lane& lane_;
  Notifier notifier_;  // on lane_
  PeerCounters& counters_;
  std::size_t most_inline_bytes_;
  std::uint64_t base_;  // the sequence numbers of this exchange start above it
  std::uint32_t depth_;
  std::uint64_t sent_ = 0;
  std::uint32_t slot_ = 0;                  // sent_ % depth_, kept so that no division is needed
  mutable std::uint64_t acknowledged_ = 0;  // as last read from the ACK cell
};

class ReceiveQueue {
 public:
  // SlotExchange::connect() must have succeeded; `edge` is one of exchange.in().
  ReceiveQueue(SlotExchange& exchange, InSlots& edge);

  // Returns the next message if it has arrived. The caller may hold up to `depth` messages that it
  // has not released.
  std::optional<Message> poll() {
    if (!has_message()) return std::nullopt;
    return take();
  }
  // Whether poll() would return a message.
  bool has_message() const {
    // Until the next message arrives, its cell holds the notification of `depth` messages ago. The
    // acquire load pairs with the release store that publishes the notification.
    return board_.sequence(cell_at(edge_.first_cell, slot_)) == base_ + received_ + 1;
  }
  // Releases the oldest message that the caller holds, and sends the ACK. kBusy means that the lane
  // was too full for the ACK. The message is released all the same: do not call release() again for
  // it. progress() sends the ACK, or the release() of the next message does. Until then the sender
  // may lack a credit. Returns kInvalidArgument if no message is held.
  Status release();
  // Sends the ACK that release() could not send, if any. kBusy while the lane is still full.
  Status progress();

  Rank peer() const { return edge_.from; }
  std::uint64_t received() const { return received_; }
  std::uint64_t released() const { return released_; }

 private:
  Message take() {
    const NotifyCell& arrived = board_.cell(cell_at(edge_.first_cell, slot_));
    const bool is_inline = arrived.length <= most_inline_bytes_;
    const std::byte* const data = is_inline ? arrived.inline_data : edge_.slots[slot_];
    // The sender writes the length, which may be anything.
    const std::size_t length =
        is_inline ? arrived.length : std::min<std::size_t>(arrived.length, slot_bytes_);
    if (++slot_ == depth_) slot_ = 0;
    ++counters_.messages_received;
    return {++received_, arrived.tag, {data, length}};
  }

  NotifyBoard& board_;
  InSlots& edge_;
  Notifier notifier_;  // on the control lane, for ACKs
  PeerCounters& counters_;
  std::size_t most_inline_bytes_;
  std::size_t slot_bytes_;
  std::uint64_t base_;
  std::uint32_t depth_;
  std::uint64_t received_ = 0;
  std::uint32_t slot_ = 0;  // received_ % depth_, kept so that no division is needed
  std::uint64_t released_ = 0;
  std::uint64_t acknowledged_ = 0;  // the last ACK that was sent
};

}  // namespace dunlin::transport
