#include "runtime/bootstrap/mail.h"

#include <sys/eventfd.h>

#include <utility>

namespace dunlin {

Mail::Mail(Send send) : send_(std::move(send)), signal_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void Mail::deliver(Letter letter) {
  const std::lock_guard lock(mutex_);
  letters_.push_back(std::move(letter));
  count_.store(letters_.size(), std::memory_order_release);
  eventfd_write(signal_.get(), 1);
}

std::optional<Letter> Mail::receive() {
  if (is_empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Letter letter = std::move(letters_.front());
  letters_.pop_front();
  count_.store(letters_.size(), std::memory_order_release);
  if (letters_.empty()) {
    eventfd_t count = 0;
    eventfd_read(signal_.get(), &count);
  }
  return letter;
}

}  // namespace dunlin
