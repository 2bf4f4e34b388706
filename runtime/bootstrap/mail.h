// Mail: short messages between two ranks, through the coordinator. Two ranks use it while they run
// to agree on something, such as a connection. It is not for data.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>

#include "runtime/bytes.h"
#include "runtime/fd.h"
#include "runtime/rank.h"

namespace dunlin {

struct MailMessage {
  Rank from;
  Bytes text;
};

// Messages from one sender arrive in the order in which it sent them. Messages to a rank that is
// gone are lost, as are all messages when the coordinator is gone. One thread receives.
class Mail {
 public:
  // `send` passes a message to the coordinator.
  using Send = std::function<void(Rank to, std::span<const std::byte> text)>;
  explicit Mail(Send send);

  // Sends at most kLargestMessage bytes; for a longer message, the coordinator closes this rank's
  // connection. Never blocks. Any thread.
  void send(Rank to, std::span<const std::byte> text) { send_(to, text); }
  // Returns the oldest message that has not been received yet. Owner thread, as all methods below.
  std::optional<MailMessage> receive();
  // Costs one load.
  bool is_empty() const { return count_.load(std::memory_order_acquire) == 0; }
  // A descriptor that is readable while there are messages.
  int fd() const { return signal_.get(); }

  static constexpr std::size_t kLargestMessage = 4096;

  // Adds a message that has arrived. Only the bootstrap calls it. Any thread.
  void deliver(MailMessage message);

 private:
  Send send_;
  Fd signal_;  // an eventfd
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::deque<MailMessage> messages_;  // under mutex_
};

}  // namespace dunlin
