// Request: an operation in progress, for Python.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/python/job.h"

namespace dunlin::python {

// The result of an operation, and the objects that have to live until it is over.
struct Outcome {
  pybind11::object result = pybind11::none();
  // Makes the result if that is possible only when the operation is over.
  std::function<pybind11::object()> make{};
  std::vector<pybind11::object> memory{};

  // Returns the result and releases the memory. Call it once the operation is over.
  pybind11::object take();
};

// If it is dropped before the operation is over, its memory is left to the job.
class Request {
 public:
  Request(std::shared_ptr<binding::Session> session,
          std::shared_ptr<binding::SessionOperation> operation, Outcome outcome);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool test();
  pybind11::object wait(std::optional<double> timeout_seconds);

 private:
  // Throws in a forked child, unless the operation is over: it belongs to the parent.
  void check_process() const;

  std::shared_ptr<binding::Session> session_;
  std::shared_ptr<binding::SessionOperation> operation_;
  Outcome outcome_;
  int forks_;  // Job::forks() of the process that made it
};

// Waits for an operation by `run(interrupt, unfinished)`, and returns its result. If the operation
// continues after the wait, the job keeps its memory.
template <typename Run>
pybind11::object complete(Run&& run, Outcome outcome) {
  const binding::Session::Interrupt interrupt = interrupt_of_thread();
  std::shared_ptr<binding::SessionOperation> unfinished;
  const Status status = released([&] { return run(interrupt, &unfinished); });
  if (unfinished) Job::instance().adopt(std::move(unfinished), std::move(outcome.memory));
  check(status);
  return outcome.take();
}

}  // namespace dunlin::python
