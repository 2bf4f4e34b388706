// SendWindow: flow control of a lane's queue pair: how many work requests fit into its send queue,
// and how many notifications into the peer's mailbox.
//
// Work requests and notifications are numbered from 1 over all connections of a lane. The queue
// pair returns work requests in order, but produces a completion only for those that are signaled.
// The peer returns credits: the number of notifications that it has taken out of its mailbox. Knows
// no device. Owner thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transports/verbs/connect/wire.h"

namespace dunlin::transport::verbs {

class SendWindow {
 public:
  // `depth`: work requests that the send queue holds.
  explicit SendWindow(std::uint64_t depth);

  // These count work requests:
  bool has_request_room() const { return requested_ - returned_ != depth_; }
  std::uint64_t next_request() { return ++requested_; }
  std::uint64_t last_request() const { return requested_; }
  // Whether the last request has to be signaled: because it is `wanted`, or because otherwise too
  // many in a row, or all that the send queue holds, would not be.
  bool must_signal(bool wanted) {
    if (!wanted && has_request_room() && requested_ - last_signaled_ < signal_every_) return false;
    last_signaled_ = requested_;
    return true;
  }
  // Whether a signaled request has not been returned yet.
  bool awaits_completion() const { return last_signaled_ > returned_; }
  void take_back(std::uint64_t request) { returned_ = std::max(returned_, request); }
  bool is_returned(std::uint64_t request) const { return request <= returned_; }
  std::uint64_t returned() const { return returned_; }

  // These count notifications:
  bool has_mailbox_room() const { return on_the_way() != mailbox_.slots; }
  std::uint64_t next_notification() { return ++notified_; }
  // The number of notifications that the peer has not taken yet.
  std::uint64_t on_the_way() const { return notified_ - taken_; }
  // The address of the slot that the next notification's record goes to.
  std::uint64_t next_slot() const {
    return mailbox_.mailbox_address + notified_ % mailbox_.slots * sizeof(Record);
  }
  // The address that flushes read. It holds the number of the last landing note that the peer has
  // carried out.
  std::uint64_t landed_address() const {
    return mailbox_.mailbox_address + mailbox_.slots * sizeof(Record);
  }
  std::uint32_t mailbox_key() const { return mailbox_.mailbox_key; }
  // The work request of this notification (0: none) has completed.
  void note_arrival(std::uint64_t notification) { arrived_ = std::max(arrived_, notification); }
  // The peer has taken notifications up to one whose number ends in these 31 bits. A late credit of
  // an earlier connection names none of those that are on the way, and is ignored.
  void take_credit(std::uint32_t told);

  // Whether a valid answer of the peer to a connection request fits what this end knows.
  bool can_resume(const Answer& answer) const;
  // Begins anew over another connection: the send queue is empty, and notifications behind those
  // that the peer has taken are sent again, with the same numbers.
  void resume(const Answer& answer);

 private:
  const std::uint64_t depth_;
  const std::uint64_t signal_every_;
  Answer mailbox_{};  // the peer's
  std::uint64_t requested_ = 0;
  std::uint64_t returned_ = 0;
  std::uint64_t last_signaled_ = 0;
  std::uint64_t notified_ = 0;  // sent
  std::uint64_t arrived_ = 0;   // of these, whose work requests have completed
  std::uint64_t taken_ = 0;     // of these, by the peer out of its mailbox
};

}  // namespace dunlin::transport::verbs
