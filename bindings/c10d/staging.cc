#include "bindings/c10d/staging.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "runtime/gpu/relaxed_capture.h"

namespace dunlin::torch_backend {

bool Staging::is_usable(const at::Tensor& tensor) const {
  return tensor.device() == device_ && tensor.is_contiguous();
}

// Always a new tensor if the given one is not usable: one of these steps copies it.
at::Tensor Staging::copy_of(const at::Tensor& tensor) const {
  const at::NoGradGuard guard;
  return tensor.to(device_).contiguous();
}

at::Tensor Staging::in(const at::Tensor& tensor) {
  if (is_usable(tensor)) return tensor;
  return held_.emplace_back(copy_of(tensor));
}

// Copies the elements, although they are not read: on every kind of device, a copy to the host
// waits for operations that still read the tensor, which the copy back would overtake otherwise.
at::Tensor Staging::out(const at::Tensor& tensor) {
  return in_out(tensor);
}

at::Tensor Staging::in_out(const at::Tensor& tensor) {
  if (is_usable(tensor)) return tensor;
  TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
              "dunlin: elements of the tensor for the result share memory; use contiguous()");
  return results_.emplace_back(Result{tensor, copy_of(tensor)}).copy;
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
  // This may be a thread of Dunlin's.
  const RelaxedCapture relaxed;
  for (const Result& result : results_)
    at::Tensor(result.tensor).copy_(result.copy, /*non_blocking=*/false);
  // Copies on a device don't wait for their end.
  if (!device_.is_cpu() && has_results())
    c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
}

}  // namespace dunlin::torch_backend
