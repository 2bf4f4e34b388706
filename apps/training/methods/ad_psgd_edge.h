// AdPsgdEdge: an AD-PSGD rank's way to and from one neighbour: what waits to be sent, in order, and
// the message that was received last. Owner thread only.
#pragma once

#include <cstdint>
#include <deque>

#include "apps/training/methods/inbox.h"
#include "apps/training/methods/method_base.h"
#include "transports/channel/queue.h"

namespace dunlin::training {

// A message's tag.
enum class PairWord : std::uint64_t {
  kPropose = 1,
  kDecline = 2,
  kModel = 3,  // the sender's model
  kLeave = 4,  // the last message of its sender on this edge
};

class AdPsgdEdge {
 public:
  AdPsgdEdge(transport::SlotExchange& exchange, transport::InSlots& in, transport::OutSlots& out)
      : out_(exchange, out), in_(exchange, in) {}

  Rank peer() const { return out_.peer(); }

  // Puts a word behind those that wait.
  void say(PairWord word) { waiting_.push_back(word); }
  // Sends what waits, kModel with `model`, whose memory is the lane's until is_model_sent(). kBusy:
  // something still waits.
  Status send(transport::LocalSlice model);
  // No model of ours waits or is under way.
  bool is_model_sent() const;
  // How the last one's sending ended.
  Status take_sent() { return posted_.take(); }
  // All that was said has been taken over.
  bool is_heard() const { return waiting_.empty() && out_.acknowledged() == out_.sent(); }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  Inbox& inbox() { return in_; }
  const Inbox& inbox() const { return in_; }
  // The neighbour is gone: nothing is said or heard any more.
  void close() {
    waiting_.clear();
    in_.drop();
  }
  // Whether our memory may go.
  bool is_done() const { return posted_.is_done(); }

 private:
  transport::SendQueue out_;
  Inbox in_;
  std::deque<PairWord> waiting_;
  Posted posted_;  // the model
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace dunlin::training
