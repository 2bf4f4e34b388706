#include "transports/verbs/memory/gpu_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace dunlin::transport::verbs {
namespace {

std::vector<GpuWay> ways(VerbsGpu wanted) {
  switch (wanted) {
    case VerbsGpu::kDmaBuf:
      return {GpuWay::kDmaBuf};
    case VerbsGpu::kPeerMemory:
      return {GpuWay::kPeerMemory};
    case VerbsGpu::kStaging:
      return {GpuWay::kStaging};
    case VerbsGpu::kAuto:
      break;
  }
  return {GpuWay::kDmaBuf, GpuWay::kPeerMemory, GpuWay::kStaging};
}

Result<RegisteredMemory> make_shadow(GpuRegistrar& registrar, std::size_t size, const char* name) {
  MemoryRegion::Options options;
  options.name = name;
  options.device_order = DeviceOrder::kRelaxed;
  options.is_private = true;
  RegisteredMemory shadow;
  DUNLIN_ASSIGN(shadow.memory, MemoryRegion::allocate(size, options));
  DUNLIN_ASSIGN(shadow.key, registrar.register_addresses(*shadow.memory));
  return shadow;
}

}  // namespace

const char* to_string(GpuWay way) {
  switch (way) {
    case GpuWay::kDmaBuf:
      return "dma-buf";
    case GpuWay::kPeerMemory:
      return "nvidia-peermem";
    case GpuWay::kStaging:
      return "staging";
  }
  return "?";
}

Result<std::unique_ptr<GpuMemory>> GpuMemory::create(GpuRegistrar& registrar,
                                                     std::shared_ptr<MemoryRegion> memory,
                                                     VerbsGpu wanted, const Clock& clock,
                                                     Duration copy_timeout) {
  std::unique_ptr<GpuMemory> made(new GpuMemory(std::move(memory), clock, copy_timeout));
  for (const GpuWay way : ways(wanted)) {
    const Status status = made->try_way(way, registrar);
    if (status.is_ok()) {
      made->way_ = way;
      return made;
    }
    made->refusals_ += fmt::format("{}{}: {}", made->refusals_.empty() ? "" : "; ", to_string(way),
                                   status.message());
  }
  return Status(
      Code::kUnavailable,
      fmt::format("verbs cannot access memory of GPU {}{}: {}", made->memory_->gpu_device(),
                  wanted == VerbsGpu::kAuto ? "" : " in the way that DUNLIN_VERBS_GPU asks for",
                  made->refusals_));
}

const GpuDevice& GpuMemory::device() const {
  return memory_->gpu()->devices()[static_cast<std::size_t>(memory_->gpu_device())];
}

Status GpuMemory::try_way(GpuWay way, GpuRegistrar& registrar) {
  if (way == GpuWay::kStaging) return make_shadows(registrar);
  DUNLIN_TRY(prepare_direct_access());
  DUNLIN_TRY(way == GpuWay::kDmaBuf ? register_dma_buf(registrar) : register_addresses(registrar));
  target_.memory = memory_;
  needs_flush_ = device().writes == GpuWrites::kNeedFlush;
  return Status::ok();
}

Status GpuMemory::prepare_direct_access() const {
  if (device().writes == GpuWrites::kUnordered) {
    return {Code::kUnavailable,
            "the GPU needs a flush of what other devices write, and its driver has none"};
  }
  return memory_->gpu()->synchronize_operations(memory_->gpu_device(), memory_->data());
}

Status GpuMemory::register_dma_buf(GpuRegistrar& registrar) {
  DUNLIN_TRY(Status(device().dma_buf));
  DUNLIN_TRY(registrar.check_dma_buf());
  DUNLIN_ASSIGN(const DmaBuf exported,
                memory_->gpu()->export_dma_buf(memory_->gpu_device(), memory_->data(), size()));
  DUNLIN_ASSIGN(target_.key, registrar.register_dma_buf(exported, *memory_));
  return Status::ok();
}

// It is simply tried, because the kernel module has had several names.
Status GpuMemory::register_addresses(GpuRegistrar& registrar) {
  auto key = registrar.register_addresses(*memory_);
  if (!key && !device().peer_mapping.is_ok())
    return std::move(key).status().with_context(device().peer_mapping.message());
  DUNLIN_ASSIGN(target_.key, std::move(key));
  return Status::ok();
}

Status GpuMemory::make_shadows(GpuRegistrar& registrar) {
  DUNLIN_ASSIGN(stream_, memory_->gpu()->create_stream(memory_->gpu_device()));
  DUNLIN_ASSIGN(RegisteredMemory arrivals, make_shadow(registrar, size(), "dunlin-gpu-arrivals"));
  DUNLIN_ASSIGN(local_, make_shadow(registrar, size(), "dunlin-gpu-local"));
  target_ = std::move(arrivals);
  return Status::ok();
}

Status GpuMemory::fetch(std::size_t offset, std::size_t size) {
  if (!is_staged() || size == 0) return Status::ok();
  DUNLIN_TRY(check_stream());
  DUNLIN_TRY(stream_->copy_to_host(local_.memory->data() + offset, memory_->data() + offset, size));
  return wait("from", size);
}

Status GpuMemory::deliver(std::size_t offset, std::size_t size) {
  return take(local_, offset, size);
}

Status GpuMemory::land(std::size_t offset, std::size_t size) {
  if (offset > memory_->size() || size > memory_->size() - offset) {
    return {Code::kOutOfRange, fmt::format("{} bytes at offset {} of a GPU region of {} bytes",
                                           size, offset, memory_->size())};
  }
  return take(target_, offset, size);
}

Status GpuMemory::take(const RegisteredMemory& shadow, std::size_t offset, std::size_t size) {
  if (needs_flush_) return memory_->gpu()->flush_writes(memory_->gpu_device());
  if (!is_staged() || size == 0) return Status::ok();
  DUNLIN_TRY(check_stream());
  DUNLIN_TRY(
      stream_->copy_to_device(memory_->data() + offset, shadow.memory->data() + offset, size));
  return wait("to", size);
}

Status GpuMemory::check_stream() const {
  if (!is_stuck_) return Status::ok();
  return {Code::kDeadlineExceeded,
          fmt::format("an earlier copy from or to GPU {} has not ended", memory_->gpu_device())};
}

Status GpuMemory::wait(const char* direction, std::size_t size) {
  Status status =
      await(*stream_, clock_, clock_.now() + copy_timeout_,
            fmt::format("copying {} bytes {} GPU {}", size, direction, memory_->gpu_device()));
  is_stuck_ = status.code() == Code::kDeadlineExceeded;
  return status;
}

}  // namespace dunlin::transport::verbs
