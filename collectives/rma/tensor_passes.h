// TensorPasses: the passes over tensors of which a window's operations consist, on the CPU or on a
// GPU. The results of both have the same bits, with the exceptions that gpu_kernels.h names.
//
// On the CPU, a pass is complete when its call returns. On a GPU, a call starts the pass, and
// finish() waits for all that were started. So a window calls finish() before it tells a peer of a
// deposit, before it looks at an edge again, and before it returns to its caller. Passes take place
// in the order of the calls.
//
// When the driver fails, or passes have not ended within config.deadline, finish() returns that
// error, then and from then on, and no further passes are made. Owner thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "collectives/kernels/gpu/gpu_kernels.h"
#include "collectives/kernels/reduce.h"
#include "runtime/gpu/driver.h"
#include "transports/fabric.h"

namespace dunlin::collective {

template <typename T>  // float, double
class TensorPasses {
 public:
  // The passes run on the CPU.
  TensorPasses() = default;
  // They run on this GPU, for tensors of `count` elements. kUnavailable: there is no driver, or
  // this build has no kernels. The fabric outlives this object.
  static Result<TensorPasses> on_gpu(transport::Fabric& fabric, int device, std::size_t count);

  // The following three are for passes on a GPU.
  const std::shared_ptr<GpuDriver>& driver() const { return gpu_->driver; }
  int device() const { return gpu_->kernels->device(); }
  // Returns kInvalidArgument unless the GPU's passes can use this memory.
  Status check(std::string_view what, std::span<const T> tensor) const;

  // All tensors are where the passes take place. Those of a call have target.size() elements.
  void copy(std::span<T> target, const T* input);
  void zero(std::span<T> target);
  // The passes of scaled.h and average.h. In an average, `own` may be the target.
  void copy_scaled(std::span<T> target, T weight, const T* input, Stores stores = Stores::kCached);
  void add_scaled(std::span<T> target, const T* base, T weight, const T* input,
                  Stores stores = Stores::kCached);
  void average(std::span<T> target, const T* own, T self_weight, std::span<const T* const> inputs,
               std::span<const T> weights);

  // Copies a tensor from memory of either kind.
  void take_in(std::span<T> target, const T* input);
  // Where passes can read a tensor in host memory, until the next call of reach(). On a GPU, this
  // is a copy, whose memory the first call allocates; on the CPU, it is the tensor itself.
  const T* reach(std::span<const T> host);
  // Copies a tensor to host memory.
  void fetch(std::span<T> host, const T* input);

  Status finish();
  // Why passes have failed.
  Status failure() const { return gpu_ == nullptr ? Status::ok() : gpu_->failure; }
  // Waits once more for passes that had not ended at the deadline. False: they still have not, and
  // may access memory at any time.
  bool settle();

 private:
  struct Gpu {
    transport::Fabric* fabric = nullptr;
    std::shared_ptr<GpuDriver> driver;
    std::unique_ptr<GpuKernels> kernels;
    std::unique_ptr<GpuStream> stream;
    std::shared_ptr<MemoryRegion> reached;  // the memory of reach(), once it was called
    std::size_t count = 0;
    bool has_started = false;  // something that has not ended, as far as is known
    Status failure;
  };

  // Waits until all passes have ended, for config.deadline at most.
  Status wait();
  // Starts work on the GPU.
  template <typename Start>
  void start(const Start& start);

  std::unique_ptr<Gpu> gpu_;  // null: on the CPU
};

extern template class TensorPasses<float>;
extern template class TensorPasses<double>;

}  // namespace dunlin::collective
