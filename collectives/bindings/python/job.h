// Job: this process's one runtime, as the Python package sees it, and the memory of operations that
// go on though Python has dropped them.
//
// All of it under the GIL. Calls into the runtime release the GIL before they ask for the runtime's
// lock, and ask for it again without that lock: so that the two are never waited for in turns.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/bindings/neighbors.h"
#include "collectives/bindings/partial.h"
#include "collectives/bindings/python/errors.h"
#include "collectives/bindings/python/interrupt.h"
#include "collectives/bindings/runtime.h"

namespace dunlin::python {

class Job {
 public:
  // Of this process.
  static Job& instance();

  void init(bool background_progress);
  // Does nothing where there is no job.
  void shutdown(binding::Ending ending, std::optional<double> patience_seconds);
  // After fork(), in the child: the job stays the parent's.
  void forget();
  bool is_initialized() const { return runtime_ != nullptr; }
  // How often this process, or one before it, was forked from another: what was made with another
  // number is not this process's.
  int forks() const { return forks_; }
  // Throw where there is none.
  const std::shared_ptr<binding::Runtime>& runtime();
  const std::shared_ptr<binding::Neighbors>& neighbors();
  const std::shared_ptr<binding::PartialReduces>& partial();

  // Keeps `memory` until the operation is over.
  void adopt(std::shared_ptr<binding::Operation> operation, std::vector<pybind11::object> memory);

 private:
  struct Orphan {
    std::shared_ptr<binding::Operation> operation;
    std::vector<pybind11::object> memory;
  };
  void sweep();

  std::shared_ptr<binding::Runtime> runtime_;  // shared with calls under way
  std::shared_ptr<binding::Neighbors> neighbors_;
  std::shared_ptr<binding::PartialReduces> partial_;
  std::weak_ptr<binding::Runtime> made_of_;  // those two
  int forks_ = 0;
  std::vector<Orphan> orphans_;
};

// Throws where what is of this runtime's job is used after the job was shut down.
void check_job(const std::shared_ptr<binding::Runtime>& runtime);

// None: nothing. Throws ValueError for what is no duration.
std::optional<Duration> to_duration(std::optional<double> seconds);

// Without the GIL.
template <typename Call>
auto released(Call&& call) {
  const pybind11::gil_scoped_release release;
  return call();
}

}  // namespace dunlin::python
