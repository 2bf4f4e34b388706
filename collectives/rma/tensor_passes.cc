#include "collectives/rma/tensor_passes.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "collectives/kernels/average.h"
#include "collectives/kernels/gpu/gpu_memory.h"
#include "collectives/kernels/scaled.h"
#include "runtime/gpu/cuda_driver.h"

namespace dunlin::collective {
namespace {

template <typename T>
constexpr DataType kType = std::is_same_v<T, float> ? DataType::kFloat32 : DataType::kFloat64;

// The driver has no function that sets memory.
constexpr std::size_t kZeroBytes = std::size_t{64} << 10;
constexpr std::array<std::byte, kZeroBytes> kZeros{};

template <typename T>
const std::byte* bytes_at(const T* tensor) {
  return reinterpret_cast<const std::byte*>(tensor);
}

}  // namespace

template <typename T>
Result<TensorPasses<T>> TensorPasses<T>::on_gpu(transport::Fabric& fabric, int device,
                                                std::size_t count) {
  auto gpu = std::make_unique<Gpu>();
  gpu->fabric = &fabric;
  gpu->count = count;
  DUNLIN_ASSIGN(gpu->driver, load_cuda_driver());
  DUNLIN_ASSIGN(gpu->kernels, GpuKernels::load(gpu->driver, device));
  DUNLIN_ASSIGN(gpu->stream, gpu->driver->create_stream(device));
  TensorPasses made;
  made.gpu_ = std::move(gpu);
  return made;
}

template <typename T>
Status TensorPasses<T>::check(std::string_view what, std::span<const T> tensor) const {
  return check_gpu_memory(*gpu_->driver, device(), what, tensor.data(), tensor.size_bytes(),
                          kType<T>, "this window is in");
}

template <typename T>
template <typename Start>
void TensorPasses<T>::start(const Start& start) {
  if (!gpu_->failure.is_ok()) return;
  gpu_->has_started = true;
  gpu_->failure = start(*gpu_->stream);
}

template <typename T>
void TensorPasses<T>::copy(std::span<T> target, const T* input) {
  if (target.empty()) return;
  if (gpu_ == nullptr) {
    std::copy_n(input, target.size(), target.data());
    return;
  }
  start([&](GpuStream& stream) {
    return stream.copy_on_device(target.data(), input, target.size_bytes());
  });
}

template <typename T>
void TensorPasses<T>::zero(std::span<T> target) {
  if (gpu_ == nullptr) {
    std::fill(target.begin(), target.end(), T{0});
    return;
  }
  auto* const bytes = reinterpret_cast<std::byte*>(target.data());
  for (std::size_t at = 0; at < target.size_bytes(); at += kZeroBytes) {
    start([&](GpuStream& stream) {
      return stream.copy_to_device(bytes + at, kZeros.data(),
                                   std::min(kZeroBytes, target.size_bytes() - at));
    });
  }
}

template <typename T>
void TensorPasses<T>::copy_scaled(std::span<T> target, T weight, const T* input, Stores stores) {
  if (gpu_ == nullptr) return collective::copy_scaled(target, weight, input, stores);
  average(target, input, weight, {}, {});
}

template <typename T>
void TensorPasses<T>::add_scaled(std::span<T> target, const T* base, T weight, const T* input,
                                 Stores stores) {
  if (gpu_ == nullptr) return collective::add_scaled(target, base, weight, input, stores);
  average(target, base, 1, std::array{input}, std::array{weight});
}

template <typename T>
void TensorPasses<T>::average(std::span<T> target, const T* own, T self_weight,
                              std::span<const T* const> inputs, std::span<const T> weights) {
  if (gpu_ == nullptr) {
    if (own != target.data()) copy(target, own);
    return weighted_average(target, self_weight, inputs, weights);
  }
  if (target.empty()) return;
  std::array<const std::byte*, gpu::kMostInputs> addresses;  // a window has no more in-neighbors
  std::array<double, gpu::kMostInputs> factors;
  const std::size_t count = inputs.size();
  std::transform(inputs.begin(), inputs.end(), addresses.begin(),
                 [](const T* input) { return bytes_at(input); });
  std::copy(weights.begin(), weights.end(), factors.begin());
  start([&](GpuStream& stream) {
    return gpu_->kernels->weighted_average(
        stream, kType<T>, bytes_at(own), reinterpret_cast<std::byte*>(target.data()), target.size(),
        self_weight, std::span(addresses).first(count), std::span(factors).first(count));
  });
}

template <typename T>
void TensorPasses<T>::take_in(std::span<T> target, const T* input) {
  if (gpu_ == nullptr || target.empty()) return copy(target, input);
  start([&](GpuStream& stream) -> Status {
    DUNLIN_ASSIGN(const auto found, gpu_->driver->find(input));
    if (found) DUNLIN_TRY(check("initial tensor", {input, target.size()}));
    return found ? stream.copy_on_device(target.data(), input, target.size_bytes())
                 : stream.copy_to_device(target.data(), input, target.size_bytes());
  });
}

template <typename T>
const T* TensorPasses<T>::reach(std::span<const T> host) {
  if (gpu_ == nullptr || host.empty()) return host.data();
  if (gpu_->reached == nullptr) {
    start([&](GpuStream&) -> Status {
      DUNLIN_ASSIGN(gpu_->reached,
                    MemoryRegion::allocate_on_gpu(gpu_->driver, device(), gpu_->count * sizeof(T)));
      return Status::ok();
    });
    if (gpu_->reached == nullptr) return nullptr;  // finish() tells why, and no pass is made
  }
  start([&](GpuStream& stream) {
    return stream.copy_to_device(gpu_->reached->data(), host.data(), host.size_bytes());
  });
  return reinterpret_cast<const T*>(gpu_->reached->data());
}

template <typename T>
void TensorPasses<T>::fetch(std::span<T> host, const T* input) {
  if (gpu_ == nullptr || host.empty()) return copy(host, input);
  start([&](GpuStream& stream) {
    return stream.copy_to_host(host.data(), input, host.size_bytes());
  });
}

template <typename T>
Status TensorPasses<T>::finish() {
  if (gpu_ == nullptr) return Status::ok();
  const bool has_timed_out = gpu_->failure.code() == Code::kDeadlineExceeded;
  if (!gpu_->has_started || has_timed_out) return gpu_->failure;
  Status done = wait();
  if (gpu_->failure.is_ok()) gpu_->failure = std::move(done);
  return gpu_->failure;
}

template <typename T>
Status TensorPasses<T>::wait() {
  const TimePoint deadline = gpu_->fabric->clock().now() + gpu_->fabric->config().deadline;
  Status done = await(*gpu_->stream, gpu_->fabric->clock(), deadline, "a window's pass on a GPU");
  // A driver that has failed carries out nothing any more.
  gpu_->has_started = done.code() == Code::kDeadlineExceeded;
  return done;
}

template <typename T>
bool TensorPasses<T>::settle() {
  if (gpu_ == nullptr || !gpu_->has_started) return true;
  (void)wait();
  return !gpu_->has_started;
}

template class TensorPasses<float>;
template class TensorPasses<double>;

}  // namespace dunlin::collective
