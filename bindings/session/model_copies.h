// Averages of a model in the caller's memory: it is copied to the memory in which models are
// averaged, averaged there, and the result is copied back. Both memories are host memory, or both
// are memory of one GPU.
//
// On the host, a copy is complete when its call returns. On a GPU, a stream carries the copies out,
// and test() finds their ends. Only settle() and destructors wait. All need the session's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/neighbor/gpu_work.h"
#include "runtime/gpu/driver.h"
#include "runtime/overlap.h"
#include "transports/fabric.h"

namespace dunlin::binding {

// The caller's memory of an average, which belongs to the operation until it is over: host memory,
// or memory of the average's GPU.
struct ModelMemory {
  const void* model = nullptr;  // null: it is in the memory of the average already
  void* result = nullptr;       // may be the model; null: it stays there
  // Recorded events of a GPU. The work before them is complete before the model is read, and before
  // the result is written. Null: the memory is ready.
  std::shared_ptr<GpuEvent> model_ready{};
  std::shared_ptr<GpuEvent> result_ready{};
};

// Copies in the order of the calls.
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

  // Copies `size` bytes, on a GPU after the work before `ready` (null: now). Returns the number of
  // the copy for test(). After an error, it is not in progress.
  Result<std::uint64_t> start(void* to, const void* from, std::size_t size, GpuEvent* ready) {
    if (size == 0) return std::uint64_t{0};
    if (work_ == nullptr) {
      std::memcpy(to, from, size);
      return std::uint64_t{0};
    }
    DUNLIN_TRY(work_->delay(ready));
    DUNLIN_TRY(work_->copy(to, from, size));
    return work_->started();
  }
  // kBusy until this copy, and all before it, are complete. An error is final: no copy is in
  // progress then, and none can be started.
  Status test(std::uint64_t number) {
    if (work_ == nullptr || number == 0) return Status::ok();
    work_->progress();
    DUNLIN_TRY(work_->failure());
    return work_->is_done(number) ? Status::ok() : Status::busy();
  }
  // Waits until no copy is in progress. After Config::deadline, that is an error for all copies.
  void settle() {
    if (work_ != nullptr) work_->settle();
  }

 private:
  std::unique_ptr<collective::neighbor::GpuWork> work_;  // null: host memory
};

// One such average. `in` and `out` may be the same object.
class CopiedAverage {
 public:
  CopiedAverage() = default;
  CopiedAverage(ModelMemory memory, std::size_t bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}

  // Starts the copy to `own`.
  Status begin(ModelCopies& in, void* own) {
    if (memory_.model == nullptr) return Status::ok();
    if (overlap(memory_.model, bytes_, own, bytes_))
      return {Code::kInvalidArgument, "the model is the average's own memory, which is for null"};
    DUNLIN_ASSIGN(copy_in_, in.start(own, memory_.model, bytes_, memory_.model_ready.get()));
    return Status::ok();
  }
  // kBusy, or the outcome. start() begins the average of what was copied; it may return kBusy.
  // test() returns kBusy until the average is complete. own() is its memory then. After an error,
  // the copy to the average's memory may be in progress: see is_copying().
  template <typename Start, typename Test, typename Own>
  Status advance(ModelCopies& in, ModelCopies& out, const Start& start, const Test& test,
                 const Own& own) {
    if (stage_ == Stage::kCopyingIn) {
      DUNLIN_TRY(in.test(copy_in_));
      DUNLIN_TRY(start());
      stage_ = Stage::kAveraging;
    }
    if (stage_ == Stage::kAveraging) {
      DUNLIN_TRY(test());
      stage_ = Stage::kCopyingOut;
      if (memory_.result != nullptr) {
        DUNLIN_ASSIGN(copy_out_,
                      out.start(memory_.result, own(), bytes_, memory_.result_ready.get()));
      }
    }
    return out.test(copy_out_);
  }
  bool is_averaging() const { return stage_ == Stage::kAveraging; }
  // Whether a copy may access the caller's memory.
  bool is_copying(ModelCopies& in, ModelCopies& out) const {
    return in.test(copy_in_).is_busy() || out.test(copy_out_).is_busy();
  }
  // Waits until none does.
  void settle(ModelCopies& in, ModelCopies& out) const {
    if (in.test(copy_in_).is_busy()) in.settle();
    if (out.test(copy_out_).is_busy()) out.settle();
  }

 private:
  enum class Stage : std::uint8_t { kCopyingIn, kAveraging, kCopyingOut };

  ModelMemory memory_;
  std::size_t bytes_ = 0;
  Stage stage_ = Stage::kCopyingIn;
  std::uint64_t copy_in_ = 0;  // numbers of copies, if started
  std::uint64_t copy_out_ = 0;
};

// What an operation waits for while it does not average.
inline std::vector<transport::Awaited> awaited_copies(const transport::Fabric& fabric) {
  return {{fabric.rank(), "copies of the model on its GPU"}};
}

}  // namespace dunlin::binding
