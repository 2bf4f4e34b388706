// Network: computes losses and gradients of an Architecture. Parameters and gradients lie in memory
// of the caller, which is memory of the device that the network computes on (device.h).
// TorchNetwork (torch_network.h) computes on CPUs, GpuNetwork (gpu/gpu_network.h) on GPUs.
//
// One thread; another thread may call the `ready` of train() while train() waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "apps/cnn/architecture.h"
#include "apps/cnn/batches.h"
#include "runtime/status.h"

namespace dunlin::cnn {

// Of batch normalization: the share of a batch in the running statistics, and what is added to
// variances.
inline constexpr float kMomentumOfStatistics = 0.1F;
inline constexpr float kLeastVariance = 1e-5F;

// What a network computes of a batch.
struct Judgment {
  double loss = 0;        // cross entropy, mean over the batch
  std::size_t right = 0;  // number of images whose class got the largest score
};

class Network {
 public:
  virtual ~Network() = default;

  virtual const Architecture& architecture() const = 0;
  // The running statistics of batch normalization, which train() updates, in memory of the device.
  // They belong to this network and are not exchanged.
  virtual std::span<float> statistics() = 0;

  // Sets the memory of the device that it computes with: architecture().count elements each, which
  // have to outlive its use. Without a gradient the network can only be evaluated.
  virtual Status bind(std::span<float> parameters, std::span<float> gradient) = 0;

  // Says that this part of the gradient is final.
  using Ready = std::function<Status(std::size_t first, std::size_t count)>;
  // Overwrites the gradient, and calls `ready` once for each segment, from the last to the first,
  // as soon as backward propagation has finished it. kOutOfRange, before the first call of `ready`,
  // if the loss is no finite number. Returns the first error of `ready`.
  virtual Result<Judgment> train(const Batch& batch, const Ready& ready) = 0;
  // Uses the running statistics, and changes nothing.
  virtual Result<Judgment> evaluate(const Batch& batch) = 0;
};

}  // namespace dunlin::cnn
