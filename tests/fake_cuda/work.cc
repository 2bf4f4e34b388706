#include "tests/fake_cuda/work.h"

#include <chrono>
#include <list>
#include <new>

namespace dunlin::testing {
namespace {

// splitmix64: a number that looks random, for each seed and draw.
std::uint64_t drawn(std::uint64_t seed, std::uint64_t draw) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15 + draw * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Keeps streams that were closed until their threads have ended, at the latest when the process
// exits: LeakSanitizer, which looks at the process then, can crash on a thread that is just ending.
class ClosedStreams {
 public:
  ~ClosedStreams() {
    for (const auto& stream : streams_) stream->end();
  }
  void add(std::shared_ptr<FakeStream> stream) {
    const std::lock_guard lock(mutex_);
    streams_.remove_if([](const auto& closed) {
      if (!closed->has_ended()) return false;
      closed->join();
      return true;
    });
    streams_.push_back(std::move(stream));
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<FakeStream>> streams_;
};

// Made when the library is loaded, so that it outlives what a program makes later and ends at its
// exit.
ClosedStreams closed_streams;

}  // namespace

void FakeMark::reach() {
  const std::lock_guard lock(mutex_);
  is_reached_ = true;
  changed_.notify_all();
}

bool FakeMark::is_reached() {
  const std::lock_guard lock(mutex_);
  return is_reached_;
}

void FakeMark::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_reached_; });
}

void FakePace::hold() {
  const std::lock_guard lock(mutex_);
  is_held_ = true;
}

void FakePace::release() {
  const std::lock_guard lock(mutex_);
  is_held_ = false;
  changed_.notify_all();
}

void FakePace::reset() {
  release();
  sticky_ = cuda::kSuccess;
}

cuda::Code FakePace::begin() {
  std::uint64_t draw = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_held_; });
    draw = ++draws_;
  }
  if (const unsigned most = settings_.delay_us; most > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(drawn(settings_.seed, draw) % most));
  std::uint64_t left = settings_.failing_work;
  while (left > 0 && !settings_.failing_work.compare_exchange_weak(left, left - 1)) {
  }
  if (left == 1) sticky_ = settings_.work_code.load();
  return sticky_;
}

std::shared_ptr<FakeStream> FakeStream::create(FakePace& pace) {
  std::shared_ptr<FakeStream> stream(new FakeStream(pace));
  stream->thread_ = std::thread([stream] { stream->run(); });
  return stream;
}

void FakeStream::add(std::function<void()> work) {
  enqueue([this, work = std::move(work)] {
    if (pace_.begin() == cuda::kSuccess) work();
  });
}

void FakeStream::add_mark(std::shared_ptr<FakeMark> mark) {
  enqueue([mark = std::move(mark)] { mark->reach(); });
}

void FakeStream::add_wait(std::shared_ptr<FakeMark> mark) {
  enqueue([mark = std::move(mark)] { mark->await(); });
}

void FakeStream::enqueue(std::function<void()> step) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(step));
  changed_.notify_all();
}

void FakeStream::join() {
  if (process_ == getpid()) {
    thread_.join();
  } else {
    new (&thread_) std::thread;  // after a fork: the thread is the parent's
  }
}

void FakeStream::end() {
  if (process_ == getpid()) pace_.release();  // a failed test may have left it held
  join();
}

bool FakeStream::is_idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !is_busy_;
}

void FakeStream::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  closed_streams.add(shared_from_this());
}

void FakeStream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() || is_closed_; });
    if (queue_.empty()) {
      has_ended_ = true;
      return;
    }
    std::function<void()> step = std::move(queue_.front());
    queue_.pop_front();
    is_busy_ = true;
    lock.unlock();
    step();
    step = nullptr;  // it may keep memory
    lock.lock();
    is_busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace dunlin::testing
