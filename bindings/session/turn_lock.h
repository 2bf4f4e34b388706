// TurnLock: a fair lock. Threads get it in the order in which they asked for it. Its holder can
// tell that another thread waits, give way by unlocking and locking again, and comes after those
// threads then.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace dunlin::binding {

// Threads: any. Not recursive.
class TurnLock {
 public:
  // If the lock is held, `on_wait()` is called once, to wake a holder that sleeps.
  template <typename OnWait>
  void lock(OnWait&& on_wait) {
    std::unique_lock guard(mutex_);
    // Relaxed: the holder need not see it at once, as on_wait() wakes a holder that sleeps.
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
  // Whether another thread waits. Only the holder may call this, because only it changes served_.
  bool is_wanted() const { return taken_.load(std::memory_order_relaxed) > served_ + 1; }

 private:
  std::mutex mutex_;
  std::condition_variable turned_;
  std::atomic<std::uint64_t> taken_{0};
  std::uint64_t served_ = 0;  // the ticket of the holder, or of the next
};

}  // namespace dunlin::binding
