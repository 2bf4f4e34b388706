#include "apps/cnn/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/gpu/cuda_driver.h"

namespace dunlin::cnn {
namespace {

// Copies of models take far less.
constexpr Duration kLongestCopy = std::chrono::minutes(2);

}  // namespace

Result<DeviceChoice> parse_device(std::string_view name) {
  if (name == "cpu") return DeviceChoice{};
  if (name == "cuda") return DeviceChoice{.is_gpu = true, .number = {}};
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    const std::string_view text = name.substr(kPrefix.size());
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number >= 0)
      return DeviceChoice{.is_gpu = true, .number = number};
  }
  return Status(Code::kInvalidArgument,
                fmt::format("no device '{}': cpu, cuda, or cuda:N for the GPU of number N", name));
}

Result<std::unique_ptr<Device>> Device::open(const DeviceChoice& choice, int local_rank) {
  if (!choice.is_gpu) return std::unique_ptr<Device>(new Device);
  auto driver = load_cuda_driver();
  if (!driver) return std::move(driver).status().with_context("--device cuda");
  const auto count = static_cast<int>((*driver)->devices().size());
  const int number = choice.number.value_or(local_rank % std::max(count, 1));
  if (number >= count) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--device cuda:{}: this host has {} GPU{}, cuda:0{}", number, count,
                              count == 1 ? "" : "s",
                              count == 1 ? "" : fmt::format(" to cuda:{}", count - 1)));
  }
  return on_gpu(std::move(driver).value(), number);
}

Result<std::unique_ptr<Device>> Device::on_gpu(std::shared_ptr<GpuDriver> driver, int number) {
  std::unique_ptr<Device> device(new Device);
  device->gpu_ = number;
  device->driver_ = std::move(driver);
  DUNLIN_ASSIGN(device->stream_, device->driver_->create_stream(number));
  return device;
}

std::string Device::name() const {
  return gpu_ ? fmt::format("cuda:{}", *gpu_) : "cpu";
}

Result<training::ModelVector> Device::allocate(std::size_t count) const {
  if (!gpu_) return training::ModelVector(count);
  return training::ModelVector::allocate_on_gpu(driver_, *gpu_, count, clock_, kLongestCopy);
}

Status Device::write(std::span<float> to, std::span<const float> from) const {
  if (!gpu_) {
    std::ranges::copy(from, to.begin());
    return Status::ok();
  }
  if (from.empty()) return Status::ok();
  return await_copy(*stream_, stream_->copy_to_device(to.data(), from.data(), from.size_bytes()),
                    clock_, clock_.now() + kLongestCopy, "a copy to " + name());
}

Result<std::vector<float>> Device::read(std::span<const float> from) const {
  std::vector<float> values(from.size());
  if (!gpu_) {
    std::ranges::copy(from, values.begin());
  } else if (!from.empty()) {
    DUNLIN_TRY(await_copy(*stream_,
                          stream_->copy_to_host(values.data(), from.data(), from.size_bytes()),
                          clock_, clock_.now() + kLongestCopy, "a copy from " + name()));
  }
  return values;
}

}  // namespace dunlin::cnn
