#include "collectives/bindings/c10d/work.h"

#include <c10/util/Exception.h>

#include <stdexcept>
#include <utility>

namespace dunlin::torch_backend {
namespace {

Handle<c10::ivalue::Future> make_future() {
  static const c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  return c10::make_intrusive<c10::ivalue::Future>(type);
}

}  // namespace

std::exception_ptr to_exception(const Status& status) {
  const std::string text = "dunlin: " + std::string(status.message());
#if TORCH_VERSION_MAJOR >= 2
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
#else
  return std::make_exception_ptr(std::runtime_error(text));
#endif
}

void raise(const Status& status) {
  std::rethrow_exception(to_exception(status));
}

Work::Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs, std::function<void()> finish)
    : c10d::Work(rank, type, title, inputs),
      outputs_(std::move(outputs)),
      finish_(std::move(finish)),
      future_(make_future()) {}

void Work::start(const Handle<Work>& work, std::shared_ptr<Task> task) {
  work->task_ = std::move(task);
  // The task keeps the work until its end, whether or not the caller does.
  work->task_->start([work](const Status& status) { work->end(status); });
}

void Work::end(const Status& status) {
  std::exception_ptr failure;
  if (!status.is_ok()) {
    failure = to_exception(status);
  } else if (finish_) {
    try {
      finish_();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  finish_ = {};
  // First: what the future calls may take its time.
  finish(failure);
  if (failure) {
    future_->setError(failure);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

bool Work::isCompleted() {
  (void)task_->is_over();
  return c10d::Work::isCompleted();
}

bool Work::wait(std::chrono::milliseconds timeout) {
  std::optional<Duration> limit;
  if (timeout.count() > 0) limit = timeout;
  const Status status = task_->wait(limit, interrupt_of_thread());
  if (!status.is_ok()) {
    raise_interrupt();
    raise(status);
  }
  // Another thread may be at it.
  std::unique_lock guard(mutex_);
  cv_.wait(guard, [&] { return completed_; });
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

}  // namespace dunlin::torch_backend
