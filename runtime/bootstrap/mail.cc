#include "runtime/bootstrap/mail.h"

#include <sys/eventfd.h>

#include <utility>

namespace dunlin {

Mail::Mail(Send send) : send_(std::move(send)), signal_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void Mail::deliver(MailMessage message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  count_.store(messages_.size(), std::memory_order_release);
  eventfd_write(signal_.get(), 1);
}

std::optional<MailMessage> Mail::receive() {
  if (is_empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  MailMessage message = std::move(messages_.front());
  messages_.pop_front();
  count_.store(messages_.size(), std::memory_order_release);
  if (messages_.empty()) {
    eventfd_t count = 0;
    eventfd_read(signal_.get(), &count);
  }
  return message;
}

}  // namespace dunlin
