#include "collectives/bindings/python/job.h"

#include <algorithm>
#include <cmath>

#include "collectives/bindings/shared_runtime.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::Ending;
using binding::Runtime;
using binding::SharedRuntime;

Job& Job::instance() {
  // Never destroyed: what it holds is Python's, and the interpreter may be gone by then.
  static Job* const job = new Job();
  return *job;
}

void Job::init(bool background_progress) {
  if (runtime_) raise(Status(Code::kAlreadyExists, "dunlin.init() was called before"));
  // Another module's, where there is one: it keeps its background thread.
  const auto make = [&] { return Runtime::create({.background_progress = background_progress}); };
  std::shared_ptr<Runtime> runtime = take(released([&] { return SharedRuntime::enter(make); }));
  if (!partial_ || made_of_.lock() != runtime) {
    neighbors_ = take(released([&] { return binding::Neighbors::create(*runtime, "world"); }));
    partial_ = take(released([&] { return binding::PartialReduces::create(*runtime); }));
    made_of_ = runtime;
  }
  runtime_ = std::move(runtime);
}

void Job::shutdown(Ending ending, std::optional<double> patience_seconds) {
  const auto patience = to_duration(patience_seconds);
  if (!runtime_) return;
  const std::shared_ptr<Runtime> runtime = runtime_;
  const Status status = released([&] {
    return SharedRuntime::leave(runtime, ending, patience.value_or(runtime->config().deadline));
  });
  if (status.code() == Code::kInvalidArgument) check(status);  // refused: it goes on
  runtime_ = nullptr;
  // Where another module still uses the runtime, operations go on, and init() may come again.
  if (released([] { return SharedRuntime::current(); }) != runtime) {
    neighbors_ = nullptr;
    partial_ = nullptr;
  }
  sweep();
  check(status);
}

void Job::forget() {
  // Neither destroyed nor used: its threads and connections are the parent's.
  (void)new std::shared_ptr<Runtime>(std::move(runtime_));
  (void)new std::shared_ptr<binding::Neighbors>(std::move(neighbors_));
  (void)new std::shared_ptr<binding::PartialReduces>(std::move(partial_));
  (void)new std::vector<Orphan>(std::move(orphans_));
  runtime_ = nullptr;
  neighbors_ = nullptr;
  partial_ = nullptr;
  ++forks_;
  orphans_.clear();
  SharedRuntime::forget();
}

const std::shared_ptr<Runtime>& Job::runtime() {
  if (!runtime_) raise(Status(Code::kClosed, "not initialized: call dunlin.init() first"));
  if (!orphans_.empty()) sweep();
  return runtime_;
}

const std::shared_ptr<binding::Neighbors>& Job::neighbors() {
  (void)runtime();
  return neighbors_;
}

const std::shared_ptr<binding::PartialReduces>& Job::partial() {
  (void)runtime();
  return partial_;
}

void Job::adopt(std::shared_ptr<binding::Operation> operation, std::vector<py::object> memory) {
  orphans_.push_back({std::move(operation), std::move(memory)});
}

void Job::sweep() {
  // Moved out first: what is released may run any Python code.
  std::vector<Orphan> over;
  const auto first = std::partition(orphans_.begin(), orphans_.end(), [](const Orphan& orphan) {
    return !orphan.operation->is_over();
  });
  std::move(first, orphans_.end(), std::back_inserter(over));
  orphans_.erase(first, orphans_.end());
}

void check_job(const std::shared_ptr<Runtime>& runtime) {
  if (Job::instance().runtime() != runtime)
    raise(Status(Code::kClosed, "it is of a job that was shut down"));
}

std::optional<Duration> to_duration(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  if (!(*seconds >= 0)) throw py::value_error("a timeout is a number of seconds, zero or more");
  constexpr double kLongest = 1e9;  // seconds: far beyond what anybody waits for
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(*seconds, kLongest)));
}

}  // namespace dunlin::python
