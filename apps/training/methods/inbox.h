// Inbox: the receiving end of a channel whose message may have to stay in its slot for a while: the
// one that was received last, and whether the sender has its receipts. Owner thread only.
#pragma once

#include <optional>

#include "transports/channel/queue.h"

namespace dunlin::training {

class Inbox {
 public:
  Inbox(transport::SlotExchange& exchange, transport::InSlots& edge) : queue_(exchange, edge) {}

  // The next message, until it is released; null where none is there.
  const transport::Message* message() {
    if (!held_) held_ = queue_.poll();
    return held();
  }
  // The message that message() has returned last, unless it was released.
  const transport::Message* held() const { return held_ ? &*held_ : nullptr; }
  // A receipt for which there is no room goes with progress().
  Status release() {
    held_.reset();
    Status status = queue_.release();
    has_receipts_sent_ = status.is_ok();
    return status.is_busy() ? Status::ok() : status;
  }
  // Sends the receipts that are owed; kBusy where there is no room for them.
  Status progress() {
    Status status = queue_.progress();
    has_receipts_sent_ = status.is_ok();
    return status;
  }
  bool has_receipts_sent() const { return has_receipts_sent_; }
  // The sender is gone: without a receipt.
  void drop() { held_.reset(); }

 private:
  transport::ReceiveQueue queue_;
  std::optional<transport::Message> held_;
  bool has_receipts_sent_ = true;
};

}  // namespace dunlin::training
