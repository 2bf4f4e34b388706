// The streams and events of the stand-in. Each stream has a thread, which does the stream's work in
// order, some time after it was added. Any thread.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

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

// Decides for the work of all streams when it begins and whether it fails.
class FakePace {
 public:
  explicit FakePace(FakeCuda& settings) : settings_(settings) {}
  void hold();
  void release();
  // Called by a stream's thread before work. Returns the code that the work fails with; kSuccess if
  // it does not fail.
  cuda::Code begin();
  // To be called when a kernel has failed.
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

class FakeStream : public std::enable_shared_from_this<FakeStream> {
 public:
  static std::shared_ptr<FakeStream> create(FakePace& pace);

  // Work that the pace may hold back and fail. After a failure, a GPU does no more work.
  void add(std::function<void()> work);
  // Add a step that reaches the mark, or one that waits for it. Such steps are done even after work
  // has failed.
  void add_mark(std::shared_ptr<FakeMark> mark);
  void add_wait(std::shared_ptr<FakeMark> mark);
  bool is_idle();
  // The thread ends once all work that was added is done. Call it once; it does not wait.
  void close();
  bool has_ended() const { return has_ended_; }
  // After close(): waits until the thread has ended.
  void join();
  // The same when the process exits.
  void end();

 private:
  explicit FakeStream(FakePace& pace) : pace_(pace) {}
  void enqueue(std::function<void()> step);
  void run();

  FakePace& pace_;
  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_busy_ = false;
  bool is_closed_ = false;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

}  // namespace dunlin::testing
