// MeasuredGpu: the GPU whose memory a rank measures (--memory cuda), and the copies that fill, read
// and compare that memory. The CPU must not dereference its addresses. Owner thread only.
#pragma once

#include <memory>
#include <span>

#include "runtime/clock.h"
#include "runtime/gpu/driver.h"
#include "runtime/memory/region.h"
#include "tools/dunlin-perf/job/shared.h"

namespace dunlin::perf {

class MeasuredGpu {
 public:
  // Opens the GPU of `memory`, or if it has no number, the one that has the number `local_rank`
  // modulo the number of GPUs. kInvalidArgument says why it cannot be used and what to do.
  // `timeout`: of each copy. `clock` outlives the result.
  static Result<std::unique_ptr<MeasuredGpu>> open(const MemoryChoice& memory, int local_rank,
                                                   const Clock& clock, Duration timeout);

  const GpuDevice& device() const;
  const std::shared_ptr<GpuDriver>& driver() const { return driver_; }

  // These return when the bytes are there.
  Status write(std::byte* to, std::span<const std::byte> from);
  Status read(std::span<std::byte> to, const std::byte* from);
  Status copy(std::byte* to, const std::byte* from, std::size_t size);

 private:
  MeasuredGpu(std::shared_ptr<GpuDriver> driver, int number, const Clock& clock, Duration timeout)
      : driver_(std::move(driver)), number_(number), clock_(clock), timeout_(timeout) {}
  Status wait(Status started);

  std::shared_ptr<GpuDriver> driver_;  // outlives the stream
  int number_;
  const Clock& clock_;
  Duration timeout_;
  std::unique_ptr<GpuStream> stream_;
};

}  // namespace dunlin::perf
