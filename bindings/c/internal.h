// The common part of the C interface's files.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "bindings/c/dunlin.h"
#include "bindings/session/group_average.h"
#include "bindings/session/mutexes.h"
#include "bindings/session/neighbors.h"
#include "bindings/session/partial.h"
#include "bindings/session/session.h"
#include "bindings/session/windows.h"

struct dunlin_communicator {
  dunlin_job* job;
  dunlin::binding::CommunicatorHandle handle;
};

struct dunlin_window {
  dunlin_job* job;
  std::shared_ptr<dunlin::binding::Window> window;
};

struct dunlin_mutex {
  dunlin_job* job;
  std::shared_ptr<dunlin::binding::Mutex> mutex;
};

struct dunlin_groups {
  dunlin_job* job;
  std::shared_ptr<dunlin::binding::GroupAverage> average;
};

struct dunlin_job {
  std::unique_ptr<dunlin::binding::Session> session;
  std::shared_ptr<dunlin::binding::Neighbors> neighbors;
  std::shared_ptr<dunlin::binding::PartialReduces> partial;
  dunlin_communicator world;
  // Objects that were not freed yet; under the mutex.
  std::mutex mutex;
  std::vector<std::unique_ptr<dunlin_communicator>> parts;  // of dunlin_split()
  std::vector<std::unique_ptr<dunlin_window>> windows;
  std::vector<std::unique_ptr<dunlin_mutex>> mutexes;
  std::vector<std::unique_ptr<dunlin_groups>> groups;
};

struct dunlin_request {
  dunlin::binding::Session* session;
  std::shared_ptr<dunlin::binding::SessionOperation> operation;
};

namespace dunlin::c {

// Converts a call's status. An error is what dunlin_last_error() returns from then on.
dunlin_code report(const Status& status);
// Reports exhausted memory, without allocating a text.
dunlin_code report_exhausted();

// Calls the function and catches its exceptions, which must not pass through C.
template <typename Function>
dunlin_code guarded(Function&& function) noexcept {
  try {
    return report(function());
  } catch (const std::bad_alloc&) {
    return report_exhausted();
  } catch (const std::exception& exception) {
    return report(Status(Code::kInternal, exception.what()));
  }
}

// The name that dunlin_name_next() has given this thread's next call; "" from then on.
std::string take_next_name();

// A timeout in seconds; negative: the deadline.
Duration timeout_of(Duration deadline, double seconds);
inline Duration timeout_of(const binding::Session& session, double seconds) {
  return timeout_of(session.config().deadline, seconds);
}
Result<collective::DataType> type_of(dunlin_data_type type);
Result<collective::Reduction> reduction_of(dunlin_data_type type, dunlin_op op);

}  // namespace dunlin::c
