// Calls of a group on the memory of a GPU, without copies through host memory.
//
// A call comes behind the work of the current stream of its GPU, as PyTorch's own operations do,
// and no thread waits for that stream. Its result is complete for all streams when its Work is, for
// which a wait() blocks the thread.
#pragma once

#include <memory>
#include <optional>

#include "bindings/c10d/staging.h"
#include "bindings/session/gpu_collectives.h"

namespace dunlin::torch_backend {

// Null: host memory.
using GpuHandle = std::shared_ptr<binding::GpuCollectives>;

// PyTorch's current stream on a device, for this thread. Empty if this PyTorch has no CUDA.
// module.cc implements it, with Python: no header of CUDA is needed.
std::optional<NativeGpuStream> current_stream(int device);

// The staging of calls that run there.
Staging staging_for(const GpuHandle& gpu);
// The work that the current stream has now. Null for host memory. Throws what the device throws.
std::shared_ptr<GpuEvent> work_before(const GpuHandle& gpu);

}  // namespace dunlin::torch_backend
