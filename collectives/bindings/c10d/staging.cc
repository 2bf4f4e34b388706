#include "collectives/bindings/c10d/staging.h"

#include <ATen/ATen.h>

namespace dunlin::torch_backend {
namespace {

at::Tensor host_like(const at::Tensor& tensor) {
  // Copies between CUDA devices and other host memory go through a buffer of the driver's.
  return at::empty(
      tensor.sizes(),
      at::TensorOptions(tensor.scalar_type()).device(at::kCPU).pinned_memory(tensor.is_cuda()));
}

// Until the current stream is done with the tensor: what writes to it next, from another stream,
// would overtake what still reads it. A copy to the host waits for that on every kind of device.
void await_stream(const at::Tensor& tensor) {
  if (tensor.numel() > 0) (void)tensor.reshape({-1}).narrow(0, 0, 1).to(at::kCPU);
}

}  // namespace

at::Tensor Staging::copy_to_host(const at::Tensor& tensor) {
  const at::NoGradGuard guard;
  at::Tensor host = host_like(tensor);
  host.copy_(tensor, /*non_blocking=*/false);
  return host;
}

at::Tensor Staging::in(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  return held_.emplace_back(copy_to_host(tensor));
}

at::Tensor Staging::out(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const at::NoGradGuard guard;
  await_stream(tensor);
  return results_.emplace_back(Result{tensor, host_like(tensor)}).host;
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
