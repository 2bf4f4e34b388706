#include "bindings/c10d/work.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bindings/c10d/open_futures.h"

namespace dunlin::torch_backend {
namespace {

Handle<c10::ivalue::Future> make_future() {
  static const c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  return c10::make_intrusive<c10::ivalue::Future>(type);
}

void check_process(const Task& task) {
  if (Status status = task.check_process(); !status.is_ok()) raise(status);
}

}  // namespace

std::exception_ptr to_exception(const Status& status) {
  // The text has the words that PyTorch's tests and handlers of errors look for.
  const std::string text =
      fmt::format("dunlin: {}{}", status.message(),
                  status.code() == Code::kPeerDead ? " (Connection closed by peer)" : "");
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
           std::vector<at::Tensor> outputs, std::function<void()> finish,
           std::shared_ptr<const int> source)
    : c10d::Work(rank, type, title, inputs),
      outputs_(std::move(outputs)),
      finish_(std::move(finish)),
      future_(make_future()),
      source_(std::move(source)) {}

void Work::start(const Handle<Work>& work, std::shared_ptr<Task> task) {
  work->task_ = std::move(task);
  add_open_future(work->future_);
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
  // This comes first, as callbacks of the future may take long.
  finish(failure);
  if (failure) {
    future_->setError(failure);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  remove_open_future(future_.get());
}

bool Work::isCompleted() {
  check_process(*task_);
  (void)task_->is_over();
  return c10d::Work::isCompleted();
}

bool Work::wait(std::chrono::milliseconds timeout) {
  check_process(*task_);
  std::optional<Duration> limit;
  timeout = limited(timeout);
  if (timeout.count() > 0) limit = timeout;
  Interruption interruption;
  const Status status = task_->wait(limit, interruption.interrupt());
  interruption.rethrow();
  if (!status.is_ok()) raise(status);
  // Another thread may be completing it.
  std::unique_lock guard(mutex_);
  cv_.wait(guard, [&] { return completed_; });
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

int Work::sourceRank() const {
  TORCH_CHECK(source_, "dunlin: only a message from any rank has a source rank");
  const std::lock_guard guard(mutex_);
  TORCH_CHECK(completed_ && !exception_, "dunlin: no message has come yet");
  return *source_;
}

void Work::abort() {
  check_process(*task_);
  task_->fail({Code::kClosed, "the operation was aborted"});
}

#if TORCH_VERSION_MAJOR >= 2
Handle<c10::ivalue::Future> Work::getFutureResult() {
  auto outcome = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  future_->addCallback([outcome](c10::ivalue::Future& future) {
    const auto result =
        future.hasError() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
    outcome->markCompleted(c10::IValue(static_cast<int64_t>(result)));
  });
  return outcome;
}
#endif

#if DUNLIN_TORCH_COALESCES
JoinedWork::JoinedWork(int rank, std::vector<Handle<c10d::Work>> parts)
    : c10d::Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

bool JoinedWork::isCompleted() {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->isCompleted(); });
}

bool JoinedWork::isSuccess() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->isSuccess(); });
}

bool JoinedWork::wait(std::chrono::milliseconds timeout) {
  for (const auto& part : parts_) part->wait(timeout);
  return true;
}

std::vector<at::Tensor> JoinedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) {
    const std::vector<at::Tensor> outputs = part->result();
    all.insert(all.end(), outputs.begin(), outputs.end());
  }
  return all;
}

Handle<c10::ivalue::Future> JoinedWork::getFuture() {
  c10::List<Handle<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& part : parts_) futures.push_back(part->getFuture());
  auto joined = make_future();
  // A DistributedDataParallel hook expects tensors, not futures.
  c10::collectAll(futures)->addCallback([joined, parts = parts_](c10::ivalue::Future& all) {
    if (all.hasError()) return joined->setError(all.exception_ptr());
    std::vector<at::Tensor> outputs;
    for (const auto& part : parts) {
      const auto results = part->result();
      outputs.insert(outputs.end(), results.begin(), results.end());
    }
    joined->markCompleted(c10::IValue(std::move(outputs)));
  });
  return joined;
}
#endif

}  // namespace dunlin::torch_backend
