// In place of torch_network.cc, in a build without LibTorch.
#include "apps/cnn/torch_network.h"

namespace dunlin::cnn {

Result<std::unique_ptr<Network>> make_torch_network(Architecture, int) {
  return Status(Code::kUnavailable,
                "this build has no LibTorch, and computes on GPUs only: give --device cuda, or "
                "install PyTorch and build again");
}

}  // namespace dunlin::cnn
