#include "runtime/bootstrap/mail.h"

#include <sys/eventfd.h>

#include <utility>

#include "runtime/log.h"

namespace dunlin {

Mail::Box::Box() : signal(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void Mail::send(MailTopic topic, Rank to, std::span<const std::byte> text) {
  Bytes encoded;
  encoded.reserve(kTopicBytes + text.size());
  encoded.push_back(static_cast<std::byte>(topic));
  encoded.insert(encoded.end(), text.begin(), text.end());
  send_(to, std::move(encoded));
}

void Mail::deliver(Rank from, std::span<const std::byte> encoded) {
  if (encoded.empty() || std::to_integer<std::size_t>(encoded[0]) >= kMailTopics) {
    DUNLIN_WARN("dropped mail of rank {}: it has no known topic", from.value());
    return;
  }
  Box& to = box(static_cast<MailTopic>(encoded[0]));
  const auto text = encoded.subspan(kTopicBytes);
  const std::lock_guard lock(to.mutex);
  to.messages.push_back({from, Bytes(text.begin(), text.end())});
  to.count.store(to.messages.size(), std::memory_order_release);
  eventfd_write(to.signal.get(), 1);
}

std::optional<MailMessage> Mail::receive(MailTopic topic) {
  if (is_empty(topic)) return std::nullopt;
  Box& from = box(topic);
  const std::lock_guard lock(from.mutex);
  MailMessage message = std::move(from.messages.front());
  from.messages.pop_front();
  from.count.store(from.messages.size(), std::memory_order_release);
  if (from.messages.empty()) {
    eventfd_t count = 0;
    eventfd_read(from.signal.get(), &count);
  }
  return message;
}

}  // namespace dunlin
