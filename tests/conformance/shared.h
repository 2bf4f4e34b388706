// Shared<T>: a value that all ranks of a test see without the library under test, in memory that
// threads and forked processes share. For events between ranks that must not progress a fabric.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "tests/support/ranks.h"

namespace dunlin::testing {

// Created before run_ranks(), and captured by its body.
template <typename T>
class Shared {
 public:
  Shared()
      : at_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0)) T()) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { munmap(at_, sizeof(T)); }
  T* operator->() const { return at_; }

 private:
  T* at_;
};

using SharedCount = Shared<std::atomic<int>>;

// Waits until `count` has reached `wanted`, for 30 s (times timeout_factor()) at most, and calls
// nothing of the library meanwhile. Returns whether it has.
inline bool await_count(const SharedCount& count, int wanted) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + std::chrono::seconds(30) * timeout_factor();
  while (count->load() < wanted) {
    if (clock.now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace dunlin::testing
