#include "bindings/c10d/gpu.h"

#include <c10/util/Exception.h>

#include <utility>

#include "bindings/c10d/group.h"

namespace dunlin::torch_backend {

using binding::GpuCollectives;

Staging staging_for(const GpuHandle& gpu) {
  if (!gpu) return Staging();
  return Staging(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(gpu->device())));
}

std::shared_ptr<GpuEvent> work_before(const GpuHandle& gpu) {
  if (!gpu) return nullptr;
  const auto stream = current_stream(gpu->device());
  TORCH_CHECK(stream, "dunlin: PyTorch has no current stream on GPU ", gpu->device());
  auto event = gpu->event_after(*stream);
  if (!event) raise(event.status());
  return *std::move(event);
}

// The group's GPU is that of its first such call. Tensors of other GPUs are copied to it.
GpuHandle Group::gpu_of(std::initializer_list<const Tensors*> lists) {
  int first = -1;
  for (const Tensors* const tensors : lists) {
    for (const Tensor& tensor : *tensors) {
      if (!tensor.defined() || !tensor.is_cuda()) return nullptr;
      if (first < 0) first = tensor.device().index();
    }
  }
  if (first < 0) return nullptr;
  if (const int known = gpu_device_; known >= 0) first = known;
  if (!current_stream(first)) return nullptr;
  check_open();
  Interruption interruption;
  auto gpu = GpuCollectives::of(*member_->engine().session, member_->communicator(), first,
                                interruption.interrupt());
  interruption.rethrow();
  if (gpu) {
    gpu_device_ = first;
    return *std::move(gpu);
  }
  if (gpu.status().code() != Code::kUnavailable) raise(gpu.status());
  return nullptr;
}

}  // namespace dunlin::torch_backend
