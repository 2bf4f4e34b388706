// GpuNetwork: a Network that computes on a GPU, with the kernels of this folder. Parameters,
// gradient, statistics and everything in between stay in the GPU's memory. Per batch, the pixels
// and labels are copied to it, and the outcome (loss and number of right answers) is copied back.
//
// train() starts all work of an iteration at once. Then it waits for the segments of the gradient
// one by one, so that their averages over the ranks overlap the rest of the backward propagation.
//
// The same computation on the same kind of GPU gives the same bits: all sums have an order. They
// differ from TorchNetwork's by rounding. The tests require each element of a gradient to agree up
// to kGradientTolerance times the largest element of its parameter.
#pragma once

#include <memory>

#include "apps/cnn/network.h"
#include "runtime/gpu/driver.h"

namespace dunlin::cnn {

inline constexpr float kGradientTolerance = 1e-4F;

// kUnavailable without kernels for the device.
Result<std::unique_ptr<Network>> make_gpu_network(Architecture architecture,
                                                  std::shared_ptr<GpuDriver> driver, int device);

}  // namespace dunlin::cnn
