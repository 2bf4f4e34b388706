// Ring: messages in both directions between this process and one peer, over a NOTIFY-ACK queue each
// way (transports/channel/queue.h). What is sent is copied before the call returns, straight into
// the peer's slot where that is mapped here. What arrives is read in its slot, and its slots can be
// given back in any order. Pair: the two rings that neighbours have between them.
//
// Nothing blocks. Owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/look_pacing.h"
#include "transports/channel/queue.h"
#include "transports/channel/slot_exchange.h"

namespace dunlin::collective::neighbor {

struct RingOptions {
  std::string name;  // the same at both ends, as the rest
  Rank peer;
  std::size_t slot_bytes = 0;
  std::uint32_t depth = 1;
};

class Ring final : public transport::Retired {
 public:
  // Publishes our end; the peer does the same.
  static Result<std::unique_ptr<Ring>> prepare(transport::Fabric& fabric,
                                               const RingOptions& options);
  // kBusy until the peer's end is there; asks the bootstrap at growing intervals.
  Status connect();
  bool is_connected() const { return sender_.has_value(); }
  Rank peer() const { return peer_; }
  std::size_t slot_bytes() const { return exchange_->options().slot_bytes; }

  // Sends the pieces, one behind the other, as one message. kBusy: no room now.
  using Pieces = std::span<const std::span<const std::byte>>;
  Status send(std::uint64_t tag, Pieces pieces);
  Status send(std::uint64_t tag, std::span<const std::byte> message) {
    return send(tag, Pieces(&message, 1));
  }

  // The next message, once it is there. Its bytes stay until it is released as often as it is held:
  // once by poll(), and once by each hold().
  std::optional<transport::Message> poll();
  void hold(std::uint64_t sequence) { ++held_[sequence - first_held_]; }
  void release(std::uint64_t sequence);
  // No further message can come before one is released.
  bool is_full() const { return held_.size() == exchange_->options().depth; }
  // The oldest message that isn't released; where is_full().
  std::uint64_t oldest() const { return first_held_; }
  // Sends the acknowledgements that are owed.
  void progress();
  // Nothing is on its way out of our memory.
  bool is_done() const override;

 private:
  Ring(transport::Fabric& fabric, Rank peer) : fabric_(fabric), peer_(peer) {}
  Status send_staged(std::uint64_t tag, Pieces pieces, std::size_t size);

  transport::Fabric& fabric_;
  Rank peer_;
  std::unique_ptr<transport::SlotExchange> exchange_;
  std::optional<transport::SendQueue> sender_;
  std::optional<transport::ReceiveQueue> receiver_;
  LookPacing looks_;
  // Where the peer's slots aren't mapped: what is on its way, slot by slot.
  std::unique_ptr<transport::LocalRegion> staging_;
  std::unique_ptr<transport::Completion[]> staged_;
  // Of the messages from first_held_ on: how often they are held still. The oldest are released.
  std::deque<std::uint32_t> held_;
  std::uint64_t first_held_ = 1;
};

// What is small, and what is said of the rest, never queues behind chunks that wait for others.
struct Pair {
  Rank peer;
  std::unique_ptr<Ring> messages;
  std::unique_ptr<Ring> chunks;

  bool is_connected() const { return messages->is_connected() && chunks->is_connected(); }
  // As Ring::connect().
  Status connect();
};

}  // namespace dunlin::collective::neighbor
