// Mail: short letters between two ranks, through the coordinator. For what two ranks have to
// arrange while they run (connections, say); data does not travel so.
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

struct Letter {
  Rank from;
  Bytes text;
};

// One reader per rank. Letters of one sender arrive in the order in which it sent them; those to a
// rank that is gone are lost, and so is all mail when the coordinator is gone.
class Mail {
 public:
  // `send` hands a letter to the coordinator.
  using Send = std::function<void(Rank to, std::span<const std::byte> text)>;
  explicit Mail(Send send);

  // At most kLargestLetter bytes, or this rank loses its connection to the coordinator. Never
  // blocks. Any thread.
  void send(Rank to, std::span<const std::byte> text) { send_(to, text); }
  // The oldest that was not received yet. Owner thread, as all below.
  std::optional<Letter> receive();
  // Costs next to nothing.
  bool is_empty() const { return count_.load(std::memory_order_acquire) == 0; }
  // Readable while there is mail.
  int fd() const { return signal_.get(); }

  static constexpr std::size_t kLargestLetter = 4096;

  // For the bootstrap: a letter has come. Any thread.
  void deliver(Letter letter);

 private:
  Send send_;
  Fd signal_;  // an eventfd
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::deque<Letter> letters_;  // under mutex_
};

}  // namespace dunlin
