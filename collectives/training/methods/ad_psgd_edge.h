// AdPsgdEdge: the channels of an AD-PSGD rank to and from one neighbor, with the messages that wait
// to be sent, in order, and the message that was received last. Owner thread only.
#pragma once

#include <cstdint>
#include <deque>

#include "collectives/training/methods/inbox.h"
#include "collectives/training/methods/method_base.h"
#include "transports/channel/queue.h"

namespace dunlin::training {

// The kind of a message, in its tag.
enum class PairMessage : std::uint64_t {
  kPropose = 1,
  kDecline = 2,
  kModel = 3,  // carries the sender's model
  kLeave = 4,  // the last message of the sender on this edge
};

class AdPsgdEdge {
 public:
  AdPsgdEdge(transport::SlotExchange& exchange, transport::InSlots& in, transport::OutSlots& out)
      : out_(exchange, out), in_(exchange, in) {}

  Rank peer() const { return out_.peer(); }

  // Appends a message to those that wait to be sent.
  void enqueue(PairMessage message) { waiting_.push_back(message); }
  // Sends the waiting messages, kModel with `model`. The lane reads `model` until is_model_sent().
  // Returns kBusy if a message still waits.
  Status send(transport::LocalSlice model);
  // True if no model of this rank waits or is in progress.
  bool is_model_sent() const;
  // The result of sending the last model.
  Status take_sent() { return posted_.take(); }
  // True if the neighbor has acknowledged all messages.
  bool is_all_acknowledged() const {
    return waiting_.empty() && out_.acknowledged() == out_.sent();
  }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  Inbox& inbox() { return in_; }
  const Inbox& inbox() const { return in_; }
  // The neighbor is gone: drops all messages to and from it.
  void close() {
    waiting_.clear();
    in_.drop();
  }
  // True if the lane does not access this rank's memory any more.
  bool is_done() const { return posted_.is_done(); }

 private:
  transport::SendQueue out_;
  Inbox in_;
  std::deque<PairMessage> waiting_;
  Posted posted_;  // the model
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace dunlin::training
