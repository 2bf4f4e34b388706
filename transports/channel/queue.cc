#include "transports/channel/queue.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::transport {
namespace {

// try_send_inline() and release() are flat, that is, with everything inlined that can be: what they
// do costs less than the calls would.

std::uint64_t base_of(const SlotExchange& exchange) {
  return exchange.options().epoch << 32;
}

}  // namespace

SendQueue::SendQueue(SlotExchange& exchange, OutSlots& edge)
    : board_(exchange.fabric().board()),
      edge_(edge),
      lane_(edge.link->data()),
      notifier_(lane_),
      counters_(exchange.fabric().counters().peer(edge.to)),
      base_(base_of(exchange)),
      depth_(exchange.options().depth) {}

std::uint64_t SendQueue::acknowledged() const {
  // Acquire: pairs with the ACK's publication; the receiver has done with the slots.
  const std::uint64_t cell = board_.sequence(edge_.ack_cell);
  if (cell > base_) acknowledged_ = std::max(acknowledged_, cell - base_);
  return acknowledged_;
}

Notification SendQueue::notification(std::uint64_t tag, std::size_t size) const {
  Notification made;
  made.id = cell_at(edge_.peer_first_cell, slot_);
  made.sequence = base_ + sent_ + 1;
  made.tag = tag;
  made.length = static_cast<std::uint32_t>(size);
  return made;
}

Status SendQueue::sent(Status status) {
  if (status.is_ok()) {
    ++sent_;
    if (++slot_ == depth_) slot_ = 0;
    ++counters_.messages_sent;
  }
  return status;
}

Status SendQueue::try_send(LocalSlice payload, std::uint64_t tag, Completion* completion) {
  if (payload.size() <= kInlineBytes) {
    Status status = try_send_inline({payload.data(), payload.size()}, tag);
    if (status.is_ok()) fire(completion);
    return status;
  }
  // The credit that was seen last suffices mostly, and spares a look at the peer's cache line.
  if (sent_ - acknowledged_ == depth_ && !has_credit()) {
    ++counters_.credit_waits;
    return Status::busy();
  }
  DUNLIN_ASSIGN(const RemoteSlice slot, edge_.slots[slot_].slice(0, payload.size()));
  return sent(lane_.put_notify(payload, slot, notification(tag, payload.size()), completion));
}

[[gnu::flatten]] Status SendQueue::try_send_inline(std::span<const std::byte> payload,
                                                   std::uint64_t tag) {
  if (sent_ - acknowledged_ == depth_ && !has_credit()) {
    ++counters_.credit_waits;
    return Status::busy();
  }
  Notification carrier = notification(tag, payload.size());
  carrier.inline_data = payload;
  return sent(notifier_.notify(carrier));
}

std::byte* SendQueue::mapped_slot() const {
  std::byte* const region = edge_.region == nullptr ? nullptr : edge_.region->mapped();
  if (region == nullptr || !has_credit()) return nullptr;
  return region + edge_.slots[slot_].offset();
}

Status SendQueue::announce(std::size_t size, std::uint64_t tag) {
  if (size <= kInlineBytes || size > edge_.slots[slot_].size()) {
    return {Code::kOutOfRange,
            fmt::format("a message of {} bytes in a slot of {}", size, edge_.slots[slot_].size())};
  }
  return sent(notifier_.notify(notification(tag, size)));
}

ReceiveQueue::ReceiveQueue(SlotExchange& exchange, InSlots& edge)
    : board_(exchange.fabric().board()),
      edge_(edge),
      notifier_(edge.link->control()),
      counters_(exchange.fabric().counters().peer(edge.from)),
      base_(base_of(exchange)),
      depth_(exchange.options().depth) {}

[[gnu::flatten]] Status ReceiveQueue::release() {
  if (released_ == received_) {
    return {Code::kInvalidArgument,
            fmt::format("release without a message from rank {}", peer().value())};
  }
  ++released_;
  return progress();
}

Status ReceiveQueue::progress() {
  if (acknowledged_ == released_) return Status::ok();
  Notification ack;
  ack.id = edge_.peer_ack_cell;
  ack.sequence = base_ + released_;
  Status status = notifier_.notify(ack);
  // Nobody is left to read an ACK to a peer that is gone; what it sent was received all the same.
  if (status.code() == Code::kPeerDead) status = Status::ok();
  if (status.is_ok()) acknowledged_ = released_;
  return status;
}

}  // namespace dunlin::transport
