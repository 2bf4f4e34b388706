// The streams and events of the stand-in. Each stream has a thread that does its work in order,
// later than it was asked for. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "runtime/gpu/cuda_interface.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace dunlin::testing {

// A point that work reaches.
class FakeMark {
 public:
  void reach();
  bool is_reached();
  void await();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false;
};

struct FakeEvent {
  std::mutex mutex;
  std::shared_ptr<FakeMark> mark;  // null: not recorded yet
};

// Does work when its time has come, of all streams together: holds it back, fails it.
class FakePace {
 public:
  explicit FakePace(FakeCuda& settings) : settings_(settings) {}
  void hold();
  void release();
  // Called by a stream's thread before work. Returns the code that the work fails with.
  cuda::Code begin();
  // Work has failed by itself.
  void fail(cuda::Code code) { sticky_ = code; }
  // What all streams return since some work has failed.
  cuda::Code sticky() const { return sticky_; }
  void reset();

 private:
  FakeCuda& settings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false;
  std::uint64_t draws_ = 0;
  std::atomic<cuda::Code> sticky_ = cuda::kSuccess;
};

class FakeStream {
 public:
  static std::shared_ptr<FakeStream> create(FakePace& pace);

  // Work that the pace may hold back and fail. After a failure, a GPU does no more work.
  void add(std::function<void()> work);
  // Reaches the mark, or waits for it, whether work has failed or not.
  void add_mark(std::shared_ptr<FakeMark> mark);
  void add_wait(std::shared_ptr<FakeMark> mark);
  bool is_idle();
  // The thread ends when the work that there is has been done.
  void close();

 private:
  explicit FakeStream(FakePace& pace) : pace_(pace) {}
  void enqueue(std::function<void()> step);
  void run();

  FakePace& pace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_busy_ = false;
  bool is_closed_ = false;
};

}  // namespace dunlin::testing
