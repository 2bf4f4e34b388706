// Inbox: the receiving end of a channel whose last message may have to stay in its slot for a
// while. It also knows whether the sender has all acknowledgments (ACKs). Owner thread only.
#pragma once

#include <optional>

#include "transports/channel/queue.h"

namespace dunlin::training {

class Inbox {
 public:
  Inbox(transport::SlotExchange& exchange, transport::InSlots& edge) : queue_(exchange, edge) {}

  // The next message, valid until release(). Null: none has arrived.
  const transport::Message* message() {
    if (!held_) held_ = queue_.poll();
    return held();
  }
  // The message that message() returned last. Null: it was released.
  const transport::Message* held() const { return held_ ? &*held_ : nullptr; }
  // Releases the message and sends its ACK. Without room for the ACK, progress() sends it later.
  Status release() {
    held_.reset();
    Status status = queue_.release();
    has_sent_acks_ = status.is_ok();
    return status.is_busy() ? Status::ok() : status;
  }
  // Sends the ACKs that are due. Returns kBusy if there is no room for them.
  Status progress() {
    Status status = queue_.progress();
    has_sent_acks_ = status.is_ok();
    return status;
  }
  bool has_sent_acks() const { return has_sent_acks_; }
  // Drops the message without an ACK, because the sender is gone.
  void drop() { held_.reset(); }

 private:
  transport::ReceiveQueue queue_;
  std::optional<transport::Message> held_;
  bool has_sent_acks_ = true;
};

}  // namespace dunlin::training
