#include "collectives/bindings/c10d/staging.h"

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

// With the elements, which nobody reads: a copy to the host is what waits, on every kind of device,
// for those that still read the tensor, and that a copy back would overtake.
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
  // Written to as by the calls that have no copies, which autograd doesn't see either.
  const at::NoGradGuard guard;
  for (const Result& result : results_)
    at::Tensor(result.tensor).copy_(result.host, /*non_blocking=*/false);
}

}  // namespace dunlin::torch_backend
