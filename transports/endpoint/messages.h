// MessageStream: messages of any size between the two sides of a connection, in order and exactly
// once, over the two queues of a channel (transports/channel/queue.h). A message that is larger
// than a slot travels in several. It arrives behind what the data lane has put before send().
// Owner thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "transports/channel/queue.h"
#include "transports/endpoint/wire.h"

namespace dunlin::transport::endpoint {

class MessageStream {
 public:
  // SlotExchange::connect() must have succeeded, for one edge in each direction. `take` is called
  // for each message.
  using Take = std::function<void(MessageKind, Bytes)>;
  static Result<std::unique_ptr<MessageStream>> create(SlotExchange& slots,
                                                       std::size_t largest_message, Take take);

  // Sends a copy of the message, now or in a later progress(). kBusy if too much waits, which does
  // not concern the connection's own kinds; kOutOfRange if it is too large.
  Status send(MessageKind kind, std::span<const std::byte> message);
  // The messages that were not handed to the lane yet, or not as a whole.
  std::size_t unsent() const { return pending_.size(); }
  // Whether the peer has taken all messages.
  bool has_delivered_all() const { return pending_.empty() && out_.acknowledged() == out_.sent(); }

  // Sends what waits, and takes the messages that have arrived while `may_take()` is true. The
  // error says that the stream cannot go on.
  template <typename MayTake>
  Status progress(MayTake&& may_take) {
    Status sent = pump();
    Status acknowledged = in_.progress();
    // First: what has arrived is taken, though nothing can be sent any more.
    while (in_.has_message() && may_take()) DUNLIN_TRY(take_one());
    DUNLIN_TRY(std::move(sent));
    return acknowledged.is_busy() ? Status::ok() : std::move(acknowledged);
  }

 private:
  struct Pending {
    MessageKind kind;
    Bytes bytes;
    std::size_t sent = 0;
  };

  MessageStream(SlotExchange& slots, std::size_t largest_message, Take take,
                std::unique_ptr<LocalRegion> staging);
  Status pump();
  // kBusy if there is no credit or the lane is full.
  Status send_part(std::span<const std::byte> part, std::uint64_t tag);
  Status take_one();

  const std::size_t slot_bytes_;
  const std::uint32_t depth_;
  const std::size_t largest_message_;
  const Take take_;
  std::unique_ptr<LocalRegion> staging_;  // a slot for each credit, where the peer's is not mapped
  SendQueue out_;
  ReceiveQueue in_;
  std::deque<Pending> pending_;
  std::size_t pending_bytes_ = 0;
  Assembly arriving_;
};

}  // namespace dunlin::transport::endpoint
