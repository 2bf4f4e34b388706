// ModelCopies: copies of models between a caller's memory and the memory in which they are
// averaged. Both are host memory, or both are memory of one GPU.
//
// On the host, a copy is complete when start() returns. On a GPU, a stream of this object carries
// out the copies in the order of the calls, and test() finds their ends, so that no thread waits
// for a GPU. Under the session's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "collectives/neighbor/gpu_work.h"
#include "runtime/gpu/driver.h"
#include "transports/fabric.h"

namespace dunlin::binding {

class ModelCopies {
 public:
  // `gpu`: its number in this process; empty: host memory. kUnavailable: there is no driver, or
  // this build has no kernels. The fabric outlives this object.
  static Result<ModelCopies> create(transport::Fabric& fabric, std::optional<int> gpu) {
    ModelCopies copies;
    if (gpu) {
      DUNLIN_ASSIGN(copies.work_, collective::neighbor::GpuWork::create(fabric, *gpu));
    }
    return copies;
  }

  // Copies `size` bytes, on a GPU after the work before `ready`. Null: now. After an error, no
  // copy is in progress.
  Status start(void* to, const void* from, std::size_t size, GpuEvent* ready) {
    if (size == 0) return Status::ok();
    if (work_ == nullptr) {
      std::memcpy(to, from, size);
      return Status::ok();
    }
    DUNLIN_TRY(work_->delay(ready));
    return work_->copy(to, from, size);
  }
  // How many copies were started on a GPU: the number of the last one.
  std::uint64_t started() const { return work_ == nullptr ? 0 : work_->started(); }
  // kBusy until this copy, and all before it, are complete. An error is final.
  Status test(std::uint64_t number) {
    if (work_ == nullptr) return Status::ok();
    work_->progress();
    DUNLIN_TRY(work_->failure());
    return work_->is_done(number) ? Status::ok() : Status::busy();
  }
  // The same for all that were started.
  Status test() { return test(started()); }
  // Waits until no copy is in progress, for Config::deadline at most.
  void settle() {
    if (work_ != nullptr) work_->settle();
  }

 private:
  std::unique_ptr<collective::neighbor::GpuWork> work_;  // null: host memory
};

// The caller's memory of an average, which belongs to the operation until it is over: host memory,
// or memory of the average's GPU.
struct ModelMemory {
  const void* model = nullptr;
  void* result = nullptr;  // may be the model
  // Recorded events of a GPU. The work before them is complete before the model is read, and before
  // the result is written. Null: the memory is ready.
  std::shared_ptr<GpuEvent> model_ready{};
  std::shared_ptr<GpuEvent> result_ready{};
};

}  // namespace dunlin::binding
