// Device: what a rank computes on, the processors of its host or one of its GPUs, and how the host
// reads and writes memory of the device. Owner thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/training/model_vector.h"
#include "runtime/gpu/driver.h"

namespace dunlin::cnn {

struct DeviceChoice {
  bool is_gpu = false;
  std::optional<int> number;  // of the GPU; empty: the ranks of a host take its GPUs in turn
};
Result<DeviceChoice> parse_device(std::string_view name);  // "cpu", "cuda", "cuda:1"

class Device {
 public:
  // kUnavailable without a driver for GPUs, kInvalidArgument if there are fewer GPUs.
  static Result<std::unique_ptr<Device>> open(const DeviceChoice& choice, int local_rank);

  // The GPU of this number of the driver.
  static Result<std::unique_ptr<Device>> on_gpu(std::shared_ptr<GpuDriver> driver, int number);

  std::string name() const;  // "cpu", "cuda:0"
  // The number of the GPU, and its driver.
  std::optional<int> gpu() const { return gpu_; }
  const std::shared_ptr<GpuDriver>& driver() const { return driver_; }

  // Memory of the device, with zeros.
  Result<training::ModelVector> allocate(std::size_t count) const;
  // Copy to and from memory of the device, and wait for the end.
  Status write(std::span<float> to, std::span<const float> from) const;
  Result<std::vector<float>> read(std::span<const float> from) const;

 private:
  Device() = default;

  SteadyClock clock_;
  std::optional<int> gpu_;
  std::shared_ptr<GpuDriver> driver_;  // null: the host itself
  std::unique_ptr<GpuStream> stream_;
};

}  // namespace dunlin::cnn
