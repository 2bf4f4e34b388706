// Job: the session of this process, as the Python package sees it, and the memory of operations
// that continue after Python has dropped them.
//
// All functions need the GIL. Lock order: never hold the GIL and the session lock together. Calls
// of the session release the GIL before they take the session's lock, and take it again after they
// have released that lock.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/pybind/interrupt.h"
#include "bindings/python/errors.h"
#include "bindings/session/neighbors.h"
#include "bindings/session/partial.h"
#include "bindings/session/session.h"

namespace dunlin::python {

class Job {
 public:
  // The job of this process.
  static Job& instance();

  // Does nothing if there is a session.
  void init(bool background_progress);
  // Does nothing without a session. No timeout: Config::deadline.
  void shutdown(binding::Ending ending, std::optional<double> timeout_seconds);
  // Call it in the child after fork(): the session belongs to the parent.
  void forget();
  bool is_initialized() const { return session_ != nullptr; }
  // The number of forks between the first process and this one. Objects that were made with another
  // number don't belong to this process.
  int forks() const { return forks_; }
  // Throw without a session.
  const std::shared_ptr<binding::Session>& session();
  const std::shared_ptr<binding::Neighbors>& neighbors();
  // For averages in the memory of a GPU, which is the same in all calls of this process. `what` is
  // for errors.
  std::shared_ptr<binding::Neighbors> neighbors_on(int gpu, const char* what);
  const std::shared_ptr<binding::PartialReduces>& partial();

  // Keeps `memory` until the operation is over.
  void adopt(std::shared_ptr<binding::SessionOperation> operation,
             std::vector<pybind11::object> memory);

 private:
  struct Orphan {
    std::shared_ptr<binding::SessionOperation> operation;
    std::vector<pybind11::object> memory;
  };
  void sweep();
  // What the package needs besides the session, unless it is there.
  Status make_parts(const std::shared_ptr<binding::Session>& session);
  void drop_parts();

  std::shared_ptr<binding::Session> session_;  // shared with calls in progress
  std::shared_ptr<binding::Neighbors> neighbors_;
  // Guards the next two. Never hold the GIL while you lock it. A forked child makes a new one.
  std::unique_ptr<std::mutex> gpu_mutex_ = std::make_unique<std::mutex>();
  std::shared_ptr<binding::Neighbors> gpu_neighbors_;  // once neighbors_on() was called
  int gpu_ = 0;                                        // theirs
  std::shared_ptr<binding::PartialReduces> partial_;
  std::weak_ptr<binding::Session> made_of_;  // the session of neighbors_ and partial_
  int forks_ = 0;
  std::vector<Orphan> orphans_;
};

// Throws if this session was shut down. Objects that belong to it call this.
void check_job(const std::shared_ptr<binding::Session>& session);

// nullopt stays nullopt. Throws ValueError for a number that is no duration.
std::optional<Duration> to_duration(std::optional<double> seconds);

// Calls without the GIL.
template <typename Call>
auto released(Call&& call) {
  const pybind11::gil_scoped_release release;
  return call();
}

}  // namespace dunlin::python
