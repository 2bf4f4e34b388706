// Request: an operation under way, for Python.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/bindings/python/job.h"

namespace dunlin::python {

// What comes of an operation, and what has to live until it is over.
struct Outcome {
  pybind11::object result = pybind11::none();
  // Makes the result, where that can be done only then.
  std::function<pybind11::object()> make{};
  std::vector<pybind11::object> memory{};

  // Once it is over; gives the memory up.
  pybind11::object take();
};

// Dropped before its end, its memory stays with the job.
class Request {
 public:
  Request(std::shared_ptr<binding::Runtime> runtime, std::shared_ptr<binding::Operation> operation,
          Outcome outcome);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool test();
  pybind11::object wait(std::optional<double> timeout_seconds);

 private:
  // Throws in a forked child, whose parent the operation is, unless it is over.
  void check_process() const;

  std::shared_ptr<binding::Runtime> runtime_;
  std::shared_ptr<binding::Operation> operation_;
  Outcome outcome_;
  int forks_;  // of the process that made it
};

// Waits for an operation that was made by `run(interrupt, unfinished)`, and returns what comes of
// it. One that goes on though the wait has ended keeps its memory.
template <typename Run>
pybind11::object complete(Run&& run, Outcome outcome) {
  const binding::Runtime::Interrupt interrupt = interrupt_of_thread();
  std::shared_ptr<binding::Operation> unfinished;
  const Status status = released([&] { return run(interrupt, &unfinished); });
  if (unfinished) Job::instance().adopt(std::move(unfinished), std::move(outcome.memory));
  check(status);
  return outcome.take();
}

}  // namespace dunlin::python
