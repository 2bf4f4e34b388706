#include "bindings/python/request.h"

#include <utility>

namespace dunlin::python {

namespace py = pybind11;
using binding::Session;
using binding::SessionOperation;

py::object Outcome::take() {
  if (make) result = std::exchange(make, nullptr)();
  memory.clear();
  return result;
}

Request::Request(std::shared_ptr<Session> session, std::shared_ptr<SessionOperation> operation,
                 Outcome outcome)
    : session_(std::move(session)),
      operation_(std::move(operation)),
      outcome_(std::move(outcome)),
      forks_(Job::instance().forks()) {}

Request::~Request() {
  if (!operation_->is_over() && forks_ == Job::instance().forks())
    Job::instance().adopt(std::move(operation_), std::move(outcome_.memory));
}

void Request::check_process() const {
  if (forks_ == Job::instance().forks() || operation_->is_over()) return;
  raise(Status(Code::kClosed,
               "the operation belongs to the parent process: a forked child is in no job"));
}

bool Request::test() {
  check_process();
  const Status status = released([&] { return session_->test(operation_); });
  if (status.is_busy()) return false;
  check(status);
  outcome_.memory.clear();
  return true;
}

py::object Request::wait(std::optional<double> timeout_seconds) {
  check_process();
  const Duration timeout = to_duration(timeout_seconds).value_or(session_->config().deadline);
  const Session::Interrupt interrupt = interrupt_of_thread();
  check(released([&] { return session_->wait(operation_, timeout, interrupt); }));
  return outcome_.take();
}

}  // namespace dunlin::python
