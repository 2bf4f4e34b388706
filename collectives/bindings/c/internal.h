// What the C interface's files share.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "collectives/bindings/c/dunlin.h"
#include "collectives/bindings/group_average.h"
#include "collectives/bindings/mutexes.h"
#include "collectives/bindings/neighbors.h"
#include "collectives/bindings/partial.h"
#include "collectives/bindings/runtime.h"
#include "collectives/bindings/windows.h"

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
  std::unique_ptr<dunlin::binding::Runtime> runtime;
  std::shared_ptr<dunlin::binding::Neighbors> neighbors;
  std::shared_ptr<dunlin::binding::PartialReduces> partial;
  dunlin_communicator world;
  // What there is until the job's end, unless it is freed before; under the mutex.
  std::mutex mutex;
  std::vector<std::unique_ptr<dunlin_communicator>> parts;  // of dunlin_split()
  std::vector<std::unique_ptr<dunlin_window>> windows;
  std::vector<std::unique_ptr<dunlin_mutex>> mutexes;
  std::vector<std::unique_ptr<dunlin_groups>> groups;
};

struct dunlin_request {
  dunlin::binding::Runtime* runtime;
  std::shared_ptr<dunlin::binding::Operation> operation;
};

namespace dunlin::c {

// What a call returns, whose failure dunlin_last_error() tells from then on.
dunlin_code report(const Status& status);
// For lack of memory: without a text, which may not fit either.
dunlin_code report_exhausted();

// Nothing may be thrown through C.
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

// Seconds; negative: the job's deadline.
Duration timeout_of(const binding::Runtime& runtime, double seconds);
Result<collective::DataType> type_of(dunlin_data_type type);
Result<collective::Reduction> reduction_of(dunlin_data_type type, dunlin_op op);

}  // namespace dunlin::c
