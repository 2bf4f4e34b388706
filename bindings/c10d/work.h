// Work: a call of a process group as PyTorch sees it. The session's background thread and waiting
// threads advance it.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "bindings/c10d/task.h"
#include "bindings/c10d/torch.h"

namespace dunlin::torch_backend {

// Limits timeouts that mean "for ever" to the longest sensible one, which has to fit into a
// Duration. PyTorch turns datetime.timedelta.max into a negative number, by an overflow.
inline std::chrono::milliseconds limited(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::seconds(1'000'000'000);
  return -kLongest < timeout && timeout < kLongest ? timeout : kLongest;
}

class Work final : public c10d::Work {
 public:
  // `outputs`: the tensors that result() and the future hold in the end. `finish` writes them; it
  // is called before, if the operations have succeeded. `source`: the sender of a message from any
  // rank, once the work is over.
  Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
       std::vector<at::Tensor> outputs, std::function<void()> finish,
       std::shared_ptr<const int> source = nullptr);

  // Call it once, before anything else, when `task` has all of its operations.
  static void start(const Handle<Work>& work, std::shared_ptr<Task> task);

  bool isCompleted() override;
  // No timeout: that of the group, from the call on. After a timeout of this wait the work
  // continues.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  Handle<c10::ivalue::Future> getFuture() override { return future_; }
  int sourceRank() const override;
  // Aborts this call in this process alone; waits for it fail.
  void abort() override;
#if TORCH_VERSION_MAJOR >= 2
  // Overrides PyTorch's function (from 2.6 on): a future of a WorkResult, never an exception.
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
// Several calls that PyTorch coalesces into one. It is over when all are, and fails with the first
// error.
class JoinedWork final : public c10d::Work {
 public:
  JoinedWork(int rank, std::vector<Handle<c10d::Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;  // the timeout applies to each call
  std::vector<at::Tensor> result() override;
  Handle<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<Handle<c10d::Work>> parts_;
};
#endif

// The exception that torch.distributed's backends raise: RuntimeError, from 2.0 on
// DistBackendError.
std::exception_ptr to_exception(const Status& status);
[[noreturn]] void raise(const Status& status);

// Ctrl-C during waits of the main thread. module.cc implements it, with Python.
class Interruption {
 public:
  Interruption() = default;
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // The interrupt for a wait, valid as long as this object exists. Empty in other threads.
  binding::Session::Interrupt interrupt();
  // Throws KeyboardInterrupt if Ctrl-C was pressed, also if the wait has succeeded meanwhile.
  void rethrow() const {
    if (caught_) std::rethrow_exception(caught_);
  }

 private:
  // Fetched from Python at once, as callbacks may run before it is thrown.
  std::exception_ptr caught_;
};

}  // namespace dunlin::torch_backend
