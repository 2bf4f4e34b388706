// The extension module torch_device: a CUDA device for a PyTorch without CUDA. Its memory is that
// of the stand-in for CUDA's driver, so that programs for GPUs run as they are, optimizers and
// windows included.
//
// Tensors on it have all operations of the CPU: PyTorch copies the operands to host memory and the
// results back. All copies are put in the default stream and waited for. Python's side, such as
// torch.cuda.current_stream(), is torch_on_standin.py.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

constexpr c10::DeviceType kCuda = c10::DeviceType::CUDA;

// What is used of CUDA's driver, by its manual.
struct Driver {
  using Address = unsigned long long;  // CUdeviceptr

  template <typename Function>
  static void find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  }
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    find(library, "cuInit", init);
    find(library, "cuDevicePrimaryCtxRetain", retain);
    find(library, "cuCtxPushCurrent_v2", push);
    find(library, "cuMemAlloc_v2", allocate);
    find(library, "cuMemFree_v2", free);
    find(library, "cuMemcpyDtoHAsync_v2", copy_to_host);
    find(library, "cuMemcpyHtoDAsync_v2", copy_to_device);
    find(library, "cuStreamQuery", query);
    check(init(0));
    check(retain(&context, 0));
  }
  static void check(int code) { TORCH_CHECK(code == 0, "CUDA's driver returned ", code); }
  // Device 0 becomes the current one of this thread.
  void use() const {
    static thread_local bool is_used = false;
    if (!std::exchange(is_used, true)) check(push(context));
  }
  void finish() const {
    constexpr int kNotReady = 600;
    int code = kNotReady;
    while (code == kNotReady) code = query(nullptr);
    check(code);
  }
  void read(void* to, const void* from, std::size_t size) const {
    if (size == 0) return;
    use();
    check(copy_to_host(to, reinterpret_cast<Address>(from), size, nullptr));
    finish();
  }
  void write(void* to, const void* from, std::size_t size) const {
    if (size == 0) return;
    use();
    check(copy_to_device(reinterpret_cast<Address>(to), from, size, nullptr));
    finish();
  }

  int (*init)(unsigned) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*allocate)(Address*, std::size_t) = nullptr;
  int (*free)(Address) = nullptr;
  int (*copy_to_host)(void*, Address, std::size_t, void*) = nullptr;
  int (*copy_to_device)(Address, const void*, std::size_t, void*) = nullptr;
  int (*query)(void*) = nullptr;
  void* context = nullptr;
};

const Driver& driver() {
  static const Driver* const made = new Driver;
  return *made;
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) const override {
    driver().use();
    Driver::Address address = 0;
    Driver::check(driver().allocate(&address, std::max<std::size_t>(size, 1)));
    void* const data = reinterpret_cast<void*>(address);
    return {data, data, &drop, c10::Device(kCuda, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }

 private:
  static void drop(void* data) {
    driver().use();
    (void)driver().free(reinterpret_cast<Driver::Address>(data));
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device device() { return {kCuda, 0}; }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device()); }
  c10::DeviceType type() const override { return kCuda; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return driver().query(nullptr) == 0; }
  void synchronizeStream(const c10::Stream&) const override { driver().finish(); }
};

// Its name is what PyTorch looks for when it first asks for CUDA.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void initCUDA() const override {}
  at::Device getDeviceFromPtr(void*) const override { return Guard::device(); }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(int64_t) const override { return true; }
  int64_t current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  // Host memory is not pinned.
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
  void deviceSynchronize(int64_t) const override { driver().finish(); }
};

// A tensor in host memory with the elements and the strides of a tensor of the device. Elements
// that lie between those of the tensor come along.
at::Tensor to_host(const at::Tensor& tensor, std::size_t& size) {
  size = tensor.numel() == 0 ? 0
                             : at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                                tensor.itemsize());
  const at::Tensor bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
  driver().read(bytes.data_ptr(), tensor.data_ptr(), size);
  return at::from_blob(
      bytes.data_ptr(), tensor.sizes(), tensor.strides(), [bytes](void*) {},
      at::TensorOptions(tensor.scalar_type()));
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool /*non_blocking*/) {
  std::size_t size = 0;
  const at::Tensor source = from.is_cuda() ? to_host(from, size) : from;
  if (!to.is_cuda()) return to.copy_(source);
  at::Tensor target = to_host(to, size);
  target.copy_(source);
  driver().write(to.data_ptr(), target.data_ptr(), size);
  return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*non_blocking*/) {
  at::Tensor target = to;
  return copy_(target, from, false);
}

const at::Tensor& resize_(const at::Tensor& tensor, at::IntArrayRef size,
                          c10::optional<at::MemoryFormat> /*format*/) {
  auto* const inner = tensor.unsafeGetTensorImpl();
  inner->set_sizes_contiguous(size);
  const std::size_t bytes =
      at::detail::computeStorageNbytesContiguous(size, tensor.itemsize(), tensor.storage_offset());
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (bytes <= storage->nbytes()) return tensor;
  c10::DataPtr data = storage->allocator()->allocate(bytes);
  const at::Tensor old = at::empty({static_cast<int64_t>(storage->nbytes())}, at::kByte);
  driver().read(old.data_ptr(), storage->data(), storage->nbytes());
  driver().write(data.get(), old.data_ptr(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(bytes);
  return tensor;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) resize_(to, from.sizes(), c10::nullopt);
  return copy_from(from, to, false);
}

Allocator allocator;

at::Tensor empty(at::IntArrayRef size, c10::optional<at::ScalarType> type,
                 c10::optional<at::Layout> /*layout*/, c10::optional<at::Device> /*device*/,
                 c10::optional<bool> /*pin_memory*/, c10::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   at::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef strides,
                         c10::optional<at::ScalarType> type, c10::optional<at::Layout> /*layout*/,
                         c10::optional<at::Device> /*device*/, c10::optional<bool> /*pin*/) {
  return at::detail::empty_strided_generic(size, strides, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           at::dtype_or_default(type));
}

// DistributedDataParallel asks for one. It measures nothing.
class Timer final : public c10d::Timer {
 public:
  explicit Timer(c10::Device) {}
  c10::optional<int64_t> measureDifference(Event, Event) override { return c10::nullopt; }
};

const at::RegistererCUDAHooksRegistry hooks(
    "CUDAHooks", at::CUDAHooksRegistry(),
    at::RegistererCUDAHooksRegistry::DefaultCreator<CUDAHooks>);

const c10d::RegistererTimerRegistry timers(kCuda, c10d::TimerRegistry(),
                                           c10d::RegistererTimerRegistry::DefaultCreator<Timer>);

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&at::native::cpu_fallback>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("resize_", &resize_);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
}

PYBIND11_MODULE(torch_device, module) {
  static const auto* const guard = new Guard;
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kCuda)].store(guard);
  c10::SetAllocator(kCuda, &allocator);
  module.def("finish", [] { driver().finish(); });
}
