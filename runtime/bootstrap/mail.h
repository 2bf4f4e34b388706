// Mail: short messages between two ranks, through the coordinator. Two ranks use it while they run
// to agree on something, such as a connection. It is not for data.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>

#include "runtime/bytes.h"
#include "runtime/fd.h"
#include "runtime/rank.h"

namespace dunlin {

// What a message is about. Each topic has its own receiver.
enum class MailTopic : std::uint8_t { kFabric, kVerbs };
inline constexpr std::size_t kMailTopics = 2;

struct MailMessage {
  Rank from;
  Bytes text;
};

// Messages of a topic from one sender arrive in the order in which it sent them. Messages to a rank
// that is gone are lost, as are all messages when the coordinator is gone. One thread receives.
class Mail {
 public:
  // `send` passes a message to the coordinator.
  using Send = std::function<void(Rank to, Bytes text)>;
  explicit Mail(Send send) : send_(std::move(send)) {}

  // Sends at most kLargestMessage bytes; for a longer message, the coordinator closes this rank's
  // connection. Never blocks. Any thread.
  void send(MailTopic topic, Rank to, std::span<const std::byte> text);
  // Returns the topic's oldest message that has not been received yet. Owner thread, as all methods
  // below.
  std::optional<MailMessage> receive(MailTopic topic);
  // Costs one load.
  bool is_empty(MailTopic topic) const {
    return box(topic).count.load(std::memory_order_acquire) == 0;
  }
  // A descriptor that is readable while the topic has messages; -1 if the process had no descriptor
  // left when the bootstrap was made.
  int fd(MailTopic topic) const { return box(topic).signal.get(); }

  static constexpr std::size_t kLargestMessage = 4096;
  // The topic is sent in front of the text.
  static constexpr std::size_t kTopicBytes = 1;

  // Adds a message that has arrived, as send() encoded it. Drops it, with a warning, if it has no
  // known topic. Only the bootstrap calls it. Any thread.
  void deliver(Rank from, std::span<const std::byte> encoded);

 private:
  struct Box {
    Box();
    Fd signal;  // an eventfd
    std::atomic<std::size_t> count{0};
    std::mutex mutex;
    std::deque<MailMessage> messages;  // under mutex
  };
  Box& box(MailTopic topic) { return boxes_[static_cast<std::size_t>(topic)]; }
  const Box& box(MailTopic topic) const { return boxes_[static_cast<std::size_t>(topic)]; }

  Send send_;
  std::array<Box, kMailTopics> boxes_;
};

}  // namespace dunlin
