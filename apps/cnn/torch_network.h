// TorchNetwork: a Network that computes with LibTorch on CPUs. No type of LibTorch is visible here.
// Exceptions of LibTorch come back as kInternal. A process has one at a time, as the number of
// threads is LibTorch's.
#pragma once

#include <memory>

#include "apps/cnn/network.h"

namespace dunlin::cnn {

// `threads`: of LibTorch in this process.
Result<std::unique_ptr<Network>> make_torch_network(Architecture architecture, int threads);

}  // namespace dunlin::cnn
