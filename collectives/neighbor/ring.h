// Ring: messages in both directions between this process and one peer, over a NOTIFY-ACK queue in
// each direction (transports/channel/queue.h). A message is copied before send() returns, straight
// into the peer's slot where that is mapped here. A message that arrives is read in its slot, and
// slots can be released in any order. Pair: the two rings between two neighbors.
//
// The slots can be in the memory of a GPU. Then messages are copied by the GPU, after send() has
// returned, and leave when their copy is done. A slot is released when the work that was started
// before the release is done, since that may read the slot.
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

#include "collectives/neighbor/gpu_work.h"
#include "collectives/waiting/lookup_backoff.h"
#include "transports/channel/queue.h"
#include "transports/channel/slot_exchange.h"

namespace dunlin::collective::neighbor {

struct RingOptions {
  std::string name;  // the same at both ends, as are size and depth of the slots
  Rank peer;
  std::size_t slot_bytes = 0;
  std::uint32_t depth = 1;
  GpuWork* gpu = nullptr;  // in whose memory the slots are; null: host memory
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
  std::size_t depth() const { return exchange_->options().depth; }

  // Sends the pieces, one after the other, as one message. kBusy: there is no room now. A GPU takes
  // one piece.
  using Pieces = std::span<const std::span<const std::byte>>;
  Status send(std::uint64_t tag, Pieces pieces);
  Status send(std::uint64_t tag, std::span<const std::byte> message) {
    return send(tag, Pieces(&message, 1));
  }
  // How many messages send() has taken.
  std::uint64_t taken() const { return sender_->sent() + copies_.size(); }
  // kBusy while one of the first `count` messages has not left; the error that keeps it from that.
  Status sent(std::uint64_t count) const;

  // The next message, if it has arrived. Its bytes stay valid until release() was called once for
  // poll() and once for each hold().
  std::optional<transport::Message> poll();
  void hold(std::uint64_t sequence) { ++held_[sequence - first_held_]; }
  void release(std::uint64_t sequence);
  // Whether no further message can arrive before one is released.
  bool is_full() const { return held_.size() == exchange_->options().depth; }
  // The oldest message that wasn't released; requires is_full().
  std::uint64_t oldest() const { return first_held_; }
  // Sends acknowledgments that could not be posted before, and what a GPU has copied.
  void progress();
  // Whether acknowledgments wait for progress().
  bool owes_acknowledgments() const { return owes_ack_ || !released_.empty(); }
  // Whether the peer may have sent anything: also true if another object has used the cell before.
  // It needs no connection.
  bool has_heard() const;
  // Drops what a GPU has not copied yet. The ring is of no use any more.
  void abandon();
  // No lane reads this object's memory.
  bool is_done() const override;

 private:
  // A message that a GPU copies.
  struct Copy {
    GpuWork::Ticket ticket = 0;
    std::uint64_t tag = 0;
    std::size_t size = 0;
  };
  struct Released {
    GpuWork::Ticket ticket = 0;
    std::uint64_t sequence = 0;
  };

  Ring(transport::Fabric& fabric, const RingOptions& options)
      : fabric_(fabric), peer_(options.peer), gpu_(options.gpu) {}
  Status send_staged(std::uint64_t tag, Pieces pieces, std::size_t size);
  Status send_from_gpu(std::uint64_t tag, std::span<const std::byte> message);
  // Sends the message that the GPU has copied.
  Status announce(const Copy& copied);
  void release_now(std::uint64_t sequence);
  // Null if this process has not mapped the peer's slots.
  std::byte* mapped_slots() const;

  transport::Fabric& fabric_;
  Rank peer_;
  GpuWork* gpu_;
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
  bool owes_ack_ = false;
  // The next three are used only if the data are in GPU memory.
  std::deque<Copy> copies_;        // in their order
  std::deque<Released> released_;  // that wait for their work, in their order
  Status failure_;                 // why no message can leave any more
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
