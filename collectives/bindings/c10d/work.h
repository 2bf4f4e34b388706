// Work: a call of a process group as PyTorch sees it. Moved on by the runtime's background thread,
// and by whoever waits for it.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <vector>

#include "collectives/bindings/c10d/task.h"
#include "collectives/bindings/c10d/torch.h"

namespace dunlin::torch_backend {

class Work final : public c10d::Work {
 public:
  // `outputs`: what result() and the future hold in the end. `finish` is called before, where the
  // operations went well, and writes them.
  Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
       std::vector<at::Tensor> outputs, std::function<void()> finish);

  // Once, before anything else. `task` has all of its operations.
  static void start(const Handle<Work>& work, std::shared_ptr<Task> task);

  bool isCompleted() override;
  // No timeout: the group's, from the call on. Where a timeout of the wait's own is over, the work
  // goes on.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  Handle<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  void end(const Status& status);

  std::shared_ptr<Task> task_;
  std::vector<at::Tensor> outputs_;
  std::function<void()> finish_;
  Handle<c10::ivalue::Future> future_;
};

// As torch.distributed's backends raise it: RuntimeError, from 2.0 on its DistBackendError.
std::exception_ptr to_exception(const Status& status);
[[noreturn]] void raise(const Status& status);

// Python's part (module.cc). Ends waits of the main thread when Ctrl-C was pressed:
binding::Runtime::Interrupt interrupt_of_thread();
// and throws KeyboardInterrupt where it did.
void raise_interrupt();

}  // namespace dunlin::torch_backend
