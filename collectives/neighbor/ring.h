// Ring: messages in both directions between this process and one peer, over a NOTIFY-ACK queue in
// each direction (transports/channel/queue.h). A message is copied before send() returns, straight
// into the peer's slot where that is mapped here. A message that arrives is read in its slot, and
// slots can be released in any order. Pair: the two rings between two neighbors.
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

#include "collectives/waiting/lookup_backoff.h"
#include "transports/channel/queue.h"
#include "transports/channel/slot_exchange.h"

namespace dunlin::collective::neighbor {

struct RingOptions {
  std::string name;  // the same at both ends, as are size and depth of the slots
  Rank peer;
  std::size_t slot_bytes = 0;
  std::uint32_t depth = 1;
};

class Ring final : public transport::KeptUntilDone {
 public:
  // Publishes this end. The peer publishes its own.
  static Result<std::unique_ptr<Ring>> prepare(transport::Fabric& fabric,
                                               const RingOptions& options);
  // kBusy until the peer has published its end. Asks the bootstrap at growing intervals.
  Status connect();
  bool is_connected() const { return sender_.has_value(); }
  Rank peer() const { return peer_; }
  std::size_t slot_bytes() const { return exchange_->options().slot_bytes; }

  // Sends the pieces, one after the other, as one message. kBusy: there is no room now.
  using Pieces = std::span<const std::span<const std::byte>>;
  Status send(std::uint64_t tag, Pieces pieces);
  Status send(std::uint64_t tag, std::span<const std::byte> message) {
    return send(tag, Pieces(&message, 1));
  }

  // The next message, if it has arrived. Its bytes stay valid until release() was called once for
  // poll() and once for each hold().
  std::optional<transport::Message> poll();
  void hold(std::uint64_t sequence) { ++held_[sequence - first_held_]; }
  void release(std::uint64_t sequence);
  // Whether no further message can arrive before one is released.
  bool is_full() const { return held_.size() == exchange_->options().depth; }
  // The oldest message that wasn't released; requires is_full().
  std::uint64_t oldest() const { return first_held_; }
  // Sends acknowledgments that could not be posted before.
  void progress();
  // No lane reads this object's memory.
  bool is_done() const override;

 private:
  Ring(transport::Fabric& fabric, Rank peer) : fabric_(fabric), peer_(peer) {}
  Status send_staged(std::uint64_t tag, Pieces pieces, std::size_t size);

  transport::Fabric& fabric_;
  Rank peer_;
  std::unique_ptr<transport::SlotExchange> exchange_;
  std::optional<transport::SendQueue> sender_;
  std::optional<transport::ReceiveQueue> receiver_;
  LookupBackoff lookups_;
  // If the peer's slots aren't mapped: copies of the messages on their way, by slot.
  std::unique_ptr<transport::LocalRegion> staging_;
  std::unique_ptr<transport::Completion[]> staged_;
  // How often each message from first_held_ on is held.
  std::deque<std::uint32_t> held_;
  std::uint64_t first_held_ = 1;
};

// The two rings between two neighbors. Small data and all headers use `messages`, so that they
// never queue behind chunks that wait for other ranks.
struct Pair {
  Rank peer;
  std::unique_ptr<Ring> messages;
  std::unique_ptr<Ring> chunks;

  bool is_connected() const { return messages->is_connected() && chunks->is_connected(); }
  // Does Ring::connect() for both rings.
  Status connect();
};

}  // namespace dunlin::collective::neighbor
