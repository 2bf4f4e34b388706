#include "tools/dunlin-perf/job/gpu.h"

#include <fmt/format.h>

#include "runtime/gpu/cuda_driver.h"

namespace dunlin::perf {
namespace {

Status refuse(const MemoryChoice& memory, std::string_view why, std::string_view remedy) {
  return {
      Code::kInvalidArgument,
      fmt::format("--memory {}: {}. {}, or measure host memory with --memory host (the default)",
                  to_string(memory), why, remedy)};
}

std::string list(const std::vector<GpuDevice>& devices) {
  std::string text;
  for (const GpuDevice& device : devices)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", device.number, device.name);
  return text;
}

}  // namespace

Result<std::unique_ptr<MeasuredGpu>> MeasuredGpu::open(const MemoryChoice& memory, int local_rank,
                                                       const Clock& clock, Duration timeout) {
  auto driver = load_cuda_driver();
  if (!driver) {
    return refuse(memory, driver.status().message(),
                  "Install NVIDIA's driver (Debian: nvidia-driver, libcuda1), start the container "
                  "with the GPUs (--gpus all), see what dunlin-info says of GPUs");
  }
  const auto& devices = (*driver)->devices();
  const int count = static_cast<int>(devices.size());
  if (memory.gpu >= count) {
    return refuse(
        memory,
        fmt::format("this process sees {} GPU{}: {}", count, count == 1 ? "" : "s", list(devices)),
        "Choose one of these, check CUDA_VISIBLE_DEVICES");
  }
  const int number = memory.gpu >= 0 ? memory.gpu : local_rank % count;
  std::unique_ptr<MeasuredGpu> gpu(new MeasuredGpu(*driver, number, clock, timeout));
  auto stream = (*driver)->create_stream(number);
  if (!stream) {
    return refuse(memory, stream.status().message(),
                  "See in nvidia-smi whether another process has the GPU to itself");
  }
  gpu->stream_ = std::move(stream).value();
  return gpu;
}

const GpuDevice& MeasuredGpu::device() const {
  return driver_->devices()[static_cast<std::size_t>(number_)];
}

Status MeasuredGpu::wait(Status started) {
  return await_copy(*stream_, std::move(started), clock_, clock_.now() + timeout_,
                    "a copy of GPU memory");
}

Status MeasuredGpu::write(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return Status::ok();
  return wait(stream_->copy_to_device(to, from.data(), from.size()));
}

Status MeasuredGpu::read(std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return Status::ok();
  return wait(stream_->copy_to_host(to.data(), from, to.size()));
}

Status MeasuredGpu::copy(std::byte* to, const std::byte* from, std::size_t size) {
  if (size == 0) return Status::ok();
  return wait(stream_->copy_on_device(to, from, size));
}

}  // namespace dunlin::perf
