// TurnLock: a lock that is given in the order in which it was asked for, and whose holder can tell
// that somebody waits for it: who holds it for long gives way, and is served after those who
// waited.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace dunlin::binding {

// Any thread. Not recursive.
class TurnLock {
 public:
  // `on_wait()` is called, once, where the lock is held: it makes a sleeping holder look up.
  template <typename OnWait>
  void lock(OnWait&& on_wait) {
    std::unique_lock guard(mutex_);
    // The holder need not see it at once: whoever sleeps is woken.
    const std::uint64_t ticket = taken_.fetch_add(1, std::memory_order_relaxed);
    if (ticket == served_) return;
    guard.unlock();
    on_wait();
    guard.lock();
    turned_.wait(guard, [&] { return served_ == ticket; });
  }
  void unlock() {
    {
      const std::lock_guard guard(mutex_);
      ++served_;
    }
    turned_.notify_all();
  }
  // The holder's to ask: only it changes served_.
  bool is_wanted() const { return taken_.load(std::memory_order_relaxed) > served_ + 1; }

 private:
  std::mutex mutex_;
  std::condition_variable turned_;
  std::atomic<std::uint64_t> taken_{0};
  std::uint64_t served_ = 0;  // the ticket of the holder, or of the next
};

}  // namespace dunlin::binding
