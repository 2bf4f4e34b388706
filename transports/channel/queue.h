// SendQueue and ReceiveQueue: the two ends of a channel, the NOTIFY-ACK queue of one directed edge
// (ASAP, section 4).
//
// The sender takes a credit, puts the payload into the receiver's next slot and NOTIFYs with its
// sequence number, in one operation of the data lane. The receiver polls, reads straight from the
// slot, releases; the ACK, a sequence number on the control lane, is cumulative. A sender never
// writes into a slot that was not acknowledged, so what poll() returns can't be torn or
// overwritten. Messages arrive in order, exactly once. Messages of up to kInlineBytes travel in the
// notification's own cache line.
//
// Nothing here blocks or reads a clock: kBusy means no credit or a full lane; progress the fabric
// and try again. Owner thread only. The exchange outlives its queues.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "transports/channel/slot_exchange.h"
#include "transports/mapped_cells.h"

namespace dunlin::transport {

struct Message {
  std::uint64_t sequence = 0;       // 1, 2, 3, ... on each edge
  std::uint64_t tag = 0;            // the sender's
  std::span<const std::byte> data;  // valid until the message is released
};

class SendQueue {
 public:
  // Of an exchange that is connected.
  SendQueue(SlotExchange& exchange, OutSlots& edge);

  // kBusy when all slots wait for their ACK. `completion`: the payload's memory may be reused.
  // kOutOfRange for payloads beyond the slot size.
  Status try_send(LocalSlice payload, std::uint64_t tag, Completion* completion);
  // The same for at most kInlineBytes of any memory, copied before the call returns.
  Status try_send_inline(std::span<const std::byte> payload, std::uint64_t tag);

  // The next message's slot, where this process has it mapped and there is a credit for it; else
  // null. More than kInlineBytes that were written there are a message once announce() was ok.
  std::byte* mapped_slot() const;
  Status announce(std::size_t size, std::uint64_t tag);

  Rank peer() const { return edge_.to; }
  std::uint64_t sent() const { return sent_; }
  // Messages that the receiver has released.
  std::uint64_t acknowledged() const;
  bool has_credit() const { return sent_ - acknowledged() < depth_; }

 private:
  Notification notification(std::uint64_t tag, std::size_t size) const;
  Status sent(Status status);

  NotifyBoard& board_;
  OutSlots& edge_;
  Lane& lane_;
  Notifier notifier_;  // of the same lane
  PeerCounters& counters_;
  std::uint64_t base_;  // sequence numbers of epoch e start above e << 32
  std::uint32_t depth_;
  std::uint64_t sent_ = 0;
  std::uint32_t slot_ = 0;  // sent_ % depth_, without a division
  mutable std::uint64_t acknowledged_ = 0;
};

class ReceiveQueue {
 public:
  // Of an exchange that is connected.
  ReceiveQueue(SlotExchange& exchange, InSlots& edge);

  // The next message, once it is there; up to `depth` messages can be held before a release.
  std::optional<Message> poll() {
    if (!has_message()) return std::nullopt;
    return take();
  }
  // Whether poll() would return one.
  bool has_message() const {
    // A cell still holds the message of `depth` sequences ago until the next one comes; one that is
    // held can't have been overwritten. Acquire: pairs with the sender's publication.
    return board_.sequence(cell_at(edge_.first_cell, slot_)) == base_ + received_ + 1;
  }
  // Gives the oldest held message's slot back to the sender. kBusy: the lane had no room for the
  // ACK, which a later release() or progress() sends (ACKs are cumulative); until then the sender
  // may wait in vain. kInvalidArgument when no message is held.
  Status release();
  // Sends an ACK that is owed; kBusy when the lane still has no room.
  Status progress();

  Rank peer() const { return edge_.from; }
  std::uint64_t received() const { return received_; }
  std::uint64_t released() const { return released_; }

 private:
  Message take() {
    const NotifyCell& arrived = board_.cell(cell_at(edge_.first_cell, slot_));
    const bool is_inline = arrived.length <= kInlineBytes;
    const std::byte* const data = is_inline ? arrived.inline_data : edge_.slots[slot_];
    if (++slot_ == depth_) slot_ = 0;
    ++counters_.messages_received;
    return {++received_, arrived.tag, {data, arrived.length}};
  }

  NotifyBoard& board_;
  InSlots& edge_;
  Notifier notifier_;  // of the ACKs' lane
  PeerCounters& counters_;
  std::uint64_t base_;
  std::uint32_t depth_;
  std::uint64_t received_ = 0;
  std::uint32_t slot_ = 0;  // received_ % depth_, without a division
  std::uint64_t released_ = 0;
  std::uint64_t acknowledged_ = 0;
};

}  // namespace dunlin::transport
