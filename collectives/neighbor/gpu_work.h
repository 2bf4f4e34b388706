// GpuWork: the copies and averages that an exchange has in progress on a GPU. They are carried out
// in the order in which they were started, by one stream, so that a copy out of memory comes before
// an average that overwrites it. Their ends are found by polling, so the process does not sleep
// meanwhile. Owner thread of the fabric only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/kernels/gpu/gpu_kernels.h"
#include "collectives/neighbor/call.h"
#include "runtime/gpu/driver.h"
#include "transports/fabric.h"

namespace dunlin::collective::neighbor {

class GpuWork {
 public:
  // The number of a piece of work in the order of the start: 1, 2, ...
  using Ticket = std::uint64_t;

  // Loads the driver and the kernels. `device` is a number of this process's. Returns kUnavailable
  // if there is no driver, or if this build has no kernels.
  static Result<std::unique_ptr<GpuWork>> create(transport::Fabric& fabric, int device);
  // Waits for the work.
  ~GpuWork();
  GpuWork(const GpuWork&) = delete;
  GpuWork& operator=(const GpuWork&) = delete;

  const std::shared_ptr<GpuDriver>& driver() const { return driver_; }
  int device() const { return kernels_->device(); }
  // Returns kInvalidArgument unless input and output of the call are memory of this device, aligned
  // to its type, or if there are more sources than one launch can take. Returns the errors of
  // GpuDriver::find().
  Status check(const NeighborCall& call) const;

  // Makes work that is started from now on begin after the work before the event. Null: no effect.
  Status delay(GpuEvent* event);
  // Start work. The memory must stay valid until the work is done. After an error nothing of it is
  // in progress.
  Status copy(void* to, const void* from, std::size_t size);
  // Does what GpuKernels::weighted_average() does, in one launch.
  Status average(DataType type, const std::byte* own, std::byte* output, std::size_t count,
                 double self_weight, std::span<const std::byte* const> inputs,
                 std::span<const double> weights);
  // The ticket of the work that was started last; 0: none was.
  Ticket started() const { return started_; }
  // Whether the work with this ticket, and all before it, accesses no memory any more. After a
  // failure that is so for all work. Changes in progress() and settle() only.
  bool is_done(Ticket ticket) const { return ticket <= done_; }
  // Why work has failed; then no more can be started.
  const Status& failure() const { return failure_; }
  // Frees the memory once the work that was started so far is done.
  void free_later(std::shared_ptr<MemoryRegion> memory);

  void progress();
  // Waits until all work is done, for config.deadline at most.
  void settle();

 private:
  struct Started {
    Ticket ticket = 0;
    std::unique_ptr<GpuEvent> event;
  };
  struct Freed {
    Ticket ticket = 0;
    std::shared_ptr<MemoryRegion> memory;
  };

  GpuWork(transport::Fabric& fabric, std::shared_ptr<GpuDriver> driver,
          std::unique_ptr<GpuKernels> kernels, std::unique_ptr<GpuStream> stream)
      : fabric_(fabric),
        driver_(std::move(driver)),
        kernels_(std::move(kernels)),
        stream_(std::move(stream)) {}
  template <typename Start>
  Status run(std::string_view what, const Start& start);
  void finish(Ticket ticket);

  transport::Fabric& fabric_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<GpuKernels> kernels_;
  std::unique_ptr<GpuStream> stream_;
  std::deque<Started> in_progress_;
  std::vector<std::unique_ptr<GpuEvent>> unused_;
  std::deque<Freed> freed_;
  std::optional<transport::Fabric::StayAwake> stay_awake_;  // while there is work
  Ticket started_ = 0;
  Ticket done_ = 0;
  Status failure_;
};

}  // namespace dunlin::collective::neighbor
