#include "transports/channel/queue.h"

#include <fmt/format.h>

#include "runtime/fnv.h"

namespace dunlin::transport {
namespace {

// try_send_inline() and release() below have everything inlined that can be (gnu::flatten), because
// their work costs less than the function calls would.

// Differs between exchanges, so that late messages to a cell's former user are not taken for those
// of this exchange.
std::uint64_t base_of(const SlotExchange& exchange) {
  return (hash_of(exchange.options().name) + exchange.options().epoch) << 32;
}

[[gnu::cold, gnu::noinline]] Status too_long(std::size_t size, std::size_t most) {
  return {Code::kInvalidArgument,
          fmt::format("an inline message of {} bytes where {} are possible", size, most)};
}

}  // namespace

SendQueue::SendQueue(SlotExchange& exchange, OutSlots& edge)
    : board_(exchange.fabric().board()),
      edge_(edge),
      lane_(edge.link->data()),
      notifier_(lane_),
      counters_(exchange.fabric().counters().peer(edge.to)),
      most_inline_bytes_(exchange.most_inline_bytes()),
      base_(base_of(exchange)),
      depth_(exchange.options().depth) {}

std::uint64_t SendQueue::acknowledged() const {
  // The acquire load pairs with the release store that publishes the ACK. After it, the receiver no
  // longer reads the slots that the ACK covers.
  const std::uint64_t count = board_.sequence(edge_.ack_cell) - base_;
  // Any other value means that no new ACK has arrived, or that the cell holds one for a former
  // user.
  if (count > acknowledged_ && count <= sent_) acknowledged_ = count;
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
  if (payload.size() <= most_inline_bytes_) {
    Status status = try_send_inline({payload.data(), payload.size()}, tag);
    if (status.is_ok()) fire(completion);
    return status;
  }
  // Read the ACK cell, a cache line that the peer writes, only if the last known credit is used up.
  if (sent_ - acknowledged_ == depth_ && !has_credit()) {
    ++counters_.credit_waits;
    return Status::busy();
  }
  DUNLIN_ASSIGN(const RemoteSlice slot, edge_.slots[slot_].slice(0, payload.size()));
  return sent(lane_.put_notify(payload, slot, notification(tag, payload.size()), completion));
}

[[gnu::flatten]] Status SendQueue::try_send_inline(std::span<const std::byte> payload,
                                                   std::uint64_t tag) {
  if (payload.size() > most_inline_bytes_) [[unlikely]]
    return too_long(payload.size(), most_inline_bytes_);
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
  if (size <= most_inline_bytes_ || size > edge_.slots[slot_].size()) {
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
      most_inline_bytes_(exchange.most_inline_bytes()),
      slot_bytes_(exchange.options().slot_bytes),
      base_(base_of(exchange)),
      depth_(exchange.options().depth) {}

[[gnu::flatten]] Status ReceiveQueue::release() {
  if (released_ == received_) {
    return {Code::kInvalidArgument,
            fmt::format("released a message from rank {} when none was held", peer().value())};
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
  // A dead sender needs no ACK. Its message was received all the same.
  if (status.code() == Code::kPeerDead) status = Status::ok();
  if (status.is_ok()) acknowledged_ = released_;
  return status;
}

}  // namespace dunlin::transport
