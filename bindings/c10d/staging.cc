#include "bindings/c10d/staging.h"

#include <ATen/ATen.h>

namespace dunlin::torch_backend {

at::Tensor Staging::copy_to_host(const at::Tensor& tensor) {
  const at::NoGradGuard guard;
  return tensor.to(at::kCPU);
}

at::Tensor Staging::in(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  return held_.emplace_back(copy_to_host(tensor));
}

// Copies the elements, although they are not read: on every kind of device, a copy to the host
// waits for operations that still read the tensor, which the copy back would overtake otherwise.
at::Tensor Staging::out(const at::Tensor& tensor) {
  return in_out(tensor);
}

at::Tensor Staging::in_out(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  return results_.emplace_back(Result{tensor, copy_to_host(tensor)}).host;
}

std::vector<at::Tensor> Staging::in(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> hosts;
  for (const at::Tensor& tensor : tensors) hosts.push_back(in(tensor));
  return hosts;
}

std::vector<at::Tensor> Staging::out(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> hosts;
  for (const at::Tensor& tensor : tensors) hosts.push_back(out(tensor));
  return hosts;
}

void Staging::copy_back() const {
  // Autograd doesn't see the write, as with calls on host tensors.
  const at::NoGradGuard guard;
  for (const Result& result : results_)
    at::Tensor(result.tensor).copy_(result.host, /*non_blocking=*/false);
}

}  // namespace dunlin::torch_backend
