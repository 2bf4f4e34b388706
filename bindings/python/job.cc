#include "bindings/python/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bindings/pybind/environment.h"
#include "bindings/session/shared_session.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::Ending;
using binding::Session;
using binding::SharedSession;

Job& Job::instance() {
  // Never destroyed: it holds objects of Python, and the interpreter may have ended by then.
  static Job* const job = new Job();
  return *job;
}

void Job::init(bool background_progress) {
  if (session_) return;
  // If another module has made the session, that keeps its background thread.
  const auto make = [&] { return Session::create({.background_progress = background_progress}); };
  std::shared_ptr<Session> session = take(released([&] { return SharedSession::enter(make); }));
  hide_job_secret();
  if (const Status status = make_parts(session); !status.is_ok()) {
    // Another init() begins anew.
    drop_parts();
    (void)released(
        [&] { return SharedSession::leave(session, Ending::kAlone, session->config().deadline); });
    check(status);
  }
  session_ = std::move(session);
}

Status Job::make_parts(const std::shared_ptr<Session>& session) {
  if (partial_ && made_of_.lock() == session) return Status::ok();
  DUNLIN_ASSIGN(neighbors_,
                released([&] { return binding::Neighbors::create(*session, "world"); }));
  DUNLIN_ASSIGN(partial_, released([&] { return binding::PartialReduces::create(*session); }));
  made_of_ = session;
  return Status::ok();
}

void Job::drop_parts() {
  neighbors_ = nullptr;
  released([&] {
    const std::lock_guard guard(*gpu_mutex_);
    gpu_neighbors_ = nullptr;
  });
  partial_ = nullptr;
}

void Job::shutdown(Ending ending, std::optional<double> timeout_seconds) {
  const auto timeout = to_duration(timeout_seconds);
  if (!session_) return;
  const std::shared_ptr<Session> session = session_;
  const Status status = released([&] {
    return SharedSession::leave(session, ending, timeout.value_or(session->config().deadline));
  });
  if (status.code() == Code::kInvalidArgument) check(status);  // refused: the session continues
  session_ = nullptr;
  // If another module still uses the session, operations continue, and init() may follow.
  if (released([] { return SharedSession::current(); }) != session) drop_parts();
  sweep();
  check(status);
}

void Job::forget() {
  // Neither destroyed nor used: the threads and connections belong to the parent.
  (void)new std::shared_ptr<Session>(std::move(session_));
  (void)new std::shared_ptr<binding::Neighbors>(std::move(neighbors_));
  (void)new std::shared_ptr<binding::Neighbors>(std::move(gpu_neighbors_));
  (void)gpu_mutex_.release();  // another thread may have held it
  gpu_mutex_ = std::make_unique<std::mutex>();
  (void)new std::shared_ptr<binding::PartialReduces>(std::move(partial_));
  (void)new std::vector<Orphan>(std::move(orphans_));
  session_ = nullptr;
  drop_parts();
  ++forks_;
  orphans_.clear();
  SharedSession::forget();
}

const std::shared_ptr<Session>& Job::session() {
  if (!session_) raise(Status(Code::kClosed, "not initialized: call dunlin.init() first"));
  if (!orphans_.empty()) sweep();
  return session_;
}

const std::shared_ptr<binding::Neighbors>& Job::neighbors() {
  (void)session();
  return neighbors_;
}

std::shared_ptr<binding::Neighbors> Job::neighbors_on(int gpu, const char* what) {
  const std::shared_ptr<Session> session = this->session();
  auto made = released([&]() -> Result<std::shared_ptr<binding::Neighbors>> {
    const std::lock_guard guard(*gpu_mutex_);
    if (!gpu_neighbors_) {
      DUNLIN_ASSIGN(gpu_neighbors_, binding::Neighbors::create(*session, "world on GPUs", gpu));
      gpu_ = gpu;
    }
    if (gpu_ == gpu) return gpu_neighbors_;
    return Status(Code::kInvalidArgument,
                  fmt::format("memory of GPU {}, but averages with neighbors use GPU {}, as the "
                              "first one on a GPU did",
                              gpu, gpu_));
  });
  check(made.status().with_context(what));
  return std::move(*made);
}

const std::shared_ptr<binding::PartialReduces>& Job::partial() {
  (void)session();
  return partial_;
}

void Job::adopt(std::shared_ptr<binding::SessionOperation> operation,
                std::vector<py::object> memory) {
  orphans_.push_back({std::move(operation), std::move(memory)});
}

void Job::sweep() {
  // Moved out first, as releasing the memory may run any Python code.
  std::vector<Orphan> over;
  const auto first = std::partition(orphans_.begin(), orphans_.end(), [](const Orphan& orphan) {
    return !orphan.operation->is_over();
  });
  std::move(first, orphans_.end(), std::back_inserter(over));
  orphans_.erase(first, orphans_.end());
}

void check_job(const std::shared_ptr<Session>& session) {
  if (Job::instance().session() != session)
    raise(Status(Code::kClosed, "the object belongs to a job that was shut down"));
}

std::optional<Duration> to_duration(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  if (!(*seconds >= 0))
    throw py::value_error("a timeout has to be a number of seconds, at least 0");
  constexpr double kLongest = 1e9;  // seconds: beyond any sensible wait
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(*seconds, kLongest)));
}

}  // namespace dunlin::python
