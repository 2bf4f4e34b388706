// Work: a call of a process group as PyTorch sees it. Moved on by the runtime's background thread,
// and by whoever waits for it.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/bindings/c10d/task.h"
#include "collectives/bindings/c10d/torch.h"

namespace dunlin::torch_backend {

// As long as anybody waits for, where a program says "for ever" with something longer: it has to
// fit into a Duration. datetime.timedelta.max comes from PyTorch overflown, as a negative one.
inline std::chrono::milliseconds limited(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::seconds(1'000'000'000);
  return -kLongest < timeout && timeout < kLongest ? timeout : kLongest;
}

class Work final : public c10d::Work {
 public:
  // `outputs`: what result() and the future hold in the end. `finish` is called before, where the
  // operations went well, and writes them. `source`: where a message from any rank was from, once
  // it is over.
  Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
       std::vector<at::Tensor> outputs, std::function<void()> finish,
       std::shared_ptr<const int> source = nullptr);

  // Once, before anything else. `task` has all of its operations.
  static void start(const Handle<Work>& work, std::shared_ptr<Task> task);

  bool isCompleted() override;
  // No timeout: the group's, from the call on. Where a timeout of the wait's own is over, the work
  // goes on.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  Handle<c10::ivalue::Future> getFuture() override { return future_; }
  int sourceRank() const override;
  // Of this call alone, as far as this process is concerned; waits for it end with an error.
  void abort() override;
#if TORCH_VERSION_MAJOR >= 2
  // Overrides where PyTorch has it (2.6): a WorkResult, never an exception.
  Handle<c10::ivalue::Future> getFutureResult();
#endif

 private:
  void end(const Status& status);

  std::shared_ptr<Task> task_;
  std::vector<at::Tensor> outputs_;
  std::function<void()> finish_;
  Handle<c10::ivalue::Future> future_;
  std::shared_ptr<const int> source_;
};

#if DUNLIN_TORCH_COALESCES
// Several calls as one, where PyTorch coalesces them: over when all are, and failed like the first
// one that did.
class JoinedWork final : public c10d::Work {
 public:
  JoinedWork(int rank, std::vector<Handle<c10d::Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;  // for each of them
  std::vector<at::Tensor> result() override;
  Handle<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<Handle<c10d::Work>> parts_;
};
#endif

// As torch.distributed's backends raise it: RuntimeError, from 2.0 on its DistBackendError.
std::exception_ptr to_exception(const Status& status);
[[noreturn]] void raise(const Status& status);

// Ctrl-C, during waits of the main thread. Python's part (module.cc).
class Interruption {
 public:
  Interruption() = default;
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // What the wait looks at, as long as this object is there. Empty in other threads.
  binding::Runtime::Interrupt look();
  // KeyboardInterrupt, where Ctrl-C was pressed: also where the wait has ended well meanwhile.
  void rethrow() const {
    if (caught_) std::rethrow_exception(caught_);
  }

 private:
  // Taken from Python at once: callbacks may run before it is thrown.
  std::exception_ptr caught_;
};

}  // namespace dunlin::torch_backend
