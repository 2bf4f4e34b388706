// The state of the stand-in's driver (driver.cc), which tests see as FakeCuda.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/state.h"
#include "tests/fake_cuda/work.h"

namespace dunlin::testing {

class State final : public FakeCuda {
 public:
  State() { read_environment(); }

  void reset() override {
    release();
    failing_call = failing_work = killing_call = 0;  // the default streams' work goes on to its end
    const std::lock_guard lock(mutex_);
    for (const auto& stream : all_streams_) {
      while (!stream->is_idle()) usleep(100);
    }
    pace.reset();
    attributes.clear();
    init_code = 0;
    is_managed = false;
    is_capturing = false;
    captured_stream = nullptr;
    calls = copies = host_copies = launches = 0;
    flushes = synchronized_pointers = contexts = freed_while_open = 0;
    context_flags = 8;
    context_flag_sets = 0;
    failed_call.clear();
    failing_name.clear();
    read_environment();
  }
  void write_off() override {
    memory.write_off();
    streams = events = modules = 0;
  }
  void hold() override { pace.hold(); }
  void release() override { pace.release(); }
  std::byte* contents(const void* address, std::size_t size) override {
    return memory.contents(reinterpret_cast<cuda::Address>(address), size);
  }
  int allocations() override { return memory.count(false); }
  int opened() override { return memory.count(true); }
  int depth() override { return static_cast<int>(current.size()); }

  // The code that this call of the program fails with.
  cuda::Code enter(const char* name) {
    ++calls;
    if (is_capturing && capture_mode != cuda::kCaptureModeRelaxed) return cuda::kCaptureUnsupported;
    if (killing_call > 0 && killing_call.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
    if (!failing_name.empty() && failing_name != name) return cuda::kSuccess;
    std::uint64_t left = failing_call;
    while (left > 0 && !failing_call.compare_exchange_weak(left, left - 1)) {
    }
    if (left != 1) return cuda::kSuccess;
    const std::lock_guard lock(mutex_);
    failed_call = name;
    return failing_code;
  }
  FakeStream* create_stream() {
    const std::lock_guard lock(mutex_);
    return all_streams_.insert(FakeStream::create(pace)).first->get();
  }
  // The stream of a handle; the default stream for null and CU_STREAM_LEGACY. Null if there is
  // none.
  std::shared_ptr<FakeStream> find(cuda::Stream handle) {
    const std::lock_guard lock(mutex_);
    if (handle == nullptr || handle == reinterpret_cast<cuda::Stream>(1)) {
      if (default_stream_ == nullptr) {
        default_stream_ = FakeStream::create(pace);
        all_streams_.insert(default_stream_);
      }
      return default_stream_;
    }
    for (const auto& stream : all_streams_) {
      if (stream.get() == reinterpret_cast<FakeStream*>(handle)) return stream;
    }
    return nullptr;
  }
  void forget(const std::shared_ptr<FakeStream>& stream) {
    const std::lock_guard lock(mutex_);
    all_streams_.erase(stream);
  }

  cuda::Code pin(const void* data, std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto* const begin = static_cast<const std::byte*>(data);
    for (const auto& [other, bytes] : pinned_) {
      if (begin < other + bytes && other < begin + size) return cuda::kAlreadyPinned;
    }
    pinned_.emplace(begin, size);
    ++pinned;
    return cuda::kSuccess;
  }
  cuda::Code unpin(const void* data) {
    const std::lock_guard lock(mutex_);
    if (pinned_.erase(static_cast<const std::byte*>(data)) == 0) return cuda::kNotPinned;
    --pinned;
    return cuda::kSuccess;
  }
  bool is_pinned(const void* data, std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto* const begin = static_cast<const std::byte*>(data);
    return std::ranges::any_of(pinned_, [&](const auto& each) {
      return begin >= each.first && begin + size <= each.first + each.second;
    });
  }

  FakeMemory memory;
  FakePace pace{*this};
  static inline thread_local std::vector<int> current;  // devices
  static inline thread_local int capture_mode = 0;      // CU_STREAM_CAPTURE_MODE_GLOBAL

 private:
  // Settings of processes that no test can reach (README.md).
  void read_environment() {
    delay_us = static_cast<unsigned>(number_from("FAKE_CUDA_DELAY_US", 0));
    seed = number_from("FAKE_CUDA_SEED", 1);
    devices = static_cast<int>(number_from("FAKE_CUDA_DEVICES", 2));
    corrupted_copy = number_from("FAKE_CUDA_CORRUPT", 0);
    has_peer_access = number_from("FAKE_CUDA_PEER_ACCESS", 1) != 0;
    failing_call = number_from("FAKE_CUDA_FAIL", 0);
    failing_code = static_cast<int>(number_from("FAKE_CUDA_CODE", 999));
    failing_work = 0;
    work_code = kIllegalAddress;
  }

  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> pinned_;  // host memory
  std::set<std::shared_ptr<FakeStream>> all_streams_;
  std::shared_ptr<FakeStream> default_stream_;
};

// Never destroyed: threads of streams may still run when the process ends.
inline State& state() {
  static State* const kMade = new State;
  return *kMade;
}

}  // namespace dunlin::testing
