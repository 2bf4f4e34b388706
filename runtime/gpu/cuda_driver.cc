#include "runtime/gpu/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <mutex>

#include "runtime/gpu/cuda_interface.h"
#include "runtime/log.h"

namespace dunlin {
namespace {

constexpr const char* kPeerMemoryModule = "/sys/module/nvidia_peermem";

cuda::Address address_of(const void* data) {
  return reinterpret_cast<cuda::Address>(data);
}

class Library {
 public:
  static Result<Library> load(const std::string& name);

  const cuda::Functions& operator*() const { return functions_; }
  const cuda::Functions* operator->() const { return &functions_; }

  // "cuMemAlloc of 5 bytes: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
  Status to_status(std::string_view what, cuda::Code code) const;
  // Returns what GpuDevice::pci_bus_id documents.
  std::string pci_bus_id(cuda::Device device) const;

 private:
  explicit Library(void* handle) : handle_(handle) {}
  template <typename Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    return function != nullptr;
  }
  const char* missing();

  void* handle_;
  cuda::Functions functions_{};
};

// Finds all functions. Returns the name of a missing function that Dunlin needs, or null.
const char* Library::missing() {
#define DUNLIN_FIND(name) \
  if (!find(functions_.name, #name)) return #name
  DUNLIN_FIND(cuInit);
  DUNLIN_FIND(cuGetErrorName);
  DUNLIN_FIND(cuGetErrorString);
  DUNLIN_FIND(cuDeviceGetCount);
  DUNLIN_FIND(cuDeviceGet);
  DUNLIN_FIND(cuDeviceGetName);
  DUNLIN_FIND(cuDeviceTotalMem_v2);
  DUNLIN_FIND(cuDeviceGetAttribute);
  DUNLIN_FIND(cuDeviceGetPCIBusId);
  DUNLIN_FIND(cuDevicePrimaryCtxRetain);
  DUNLIN_FIND(cuCtxGetDevice);
  DUNLIN_FIND(cuCtxPushCurrent_v2);
  DUNLIN_FIND(cuCtxPopCurrent_v2);
  DUNLIN_FIND(cuMemAlloc_v2);
  DUNLIN_FIND(cuMemFree_v2);
  DUNLIN_FIND(cuMemGetAddressRange_v2);
  DUNLIN_FIND(cuPointerGetAttribute);
  DUNLIN_FIND(cuPointerSetAttribute);
  DUNLIN_FIND(cuStreamCreate);
  DUNLIN_FIND(cuStreamDestroy_v2);
  DUNLIN_FIND(cuStreamQuery);
  DUNLIN_FIND(cuMemcpyHtoDAsync_v2);
  DUNLIN_FIND(cuMemcpyDtoHAsync_v2);
#undef DUNLIN_FIND
  (void)find(functions_.cuFlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites");
  (void)find(functions_.cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange");
  return nullptr;
}

Result<Library> Library::load(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(Code::kUnavailable, fmt::format("no CUDA driver: {}", dlerror()));
  Library library(handle);
  if (const char* const function = library.missing(); function != nullptr) {
    return Status(Code::kUnavailable,
                  fmt::format("the CUDA driver {} is too old: it has no {}", name, function));
  }
  return library;
}

Status Library::to_status(std::string_view what, cuda::Code code) const {
  if (code == cuda::kSuccess) return Status::ok();
  const char* name = nullptr;
  const char* text = nullptr;
  (void)functions_.cuGetErrorName(code, &name);
  (void)functions_.cuGetErrorString(code, &text);
  const Code kind = code == cuda::kOutOfMemory    ? Code::kResourceExhausted
                    : code == cuda::kInvalidValue ? Code::kInvalidArgument
                    : code == cuda::kNotSupported || code == cuda::kNoDevice ? Code::kUnavailable
                                                                             : Code::kIoError;
  return {kind, fmt::format("{}: {}: {}", what, name == nullptr ? std::to_string(code) : name,
                            text == nullptr ? "unknown error" : text)};
}

std::string Library::pci_bus_id(cuda::Device device) const {
  char text[32] = "";
  if (functions_.cuDeviceGetPCIBusId(text, sizeof text, device) != cuda::kSuccess) return "";
  for (char& character : text)
    character = static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
  return text;
}

// Makes the primary context of a device current for the calling thread until this is destroyed. The
// CUDA runtime and its users share that context.
class Current {
 public:
  Current(const Library& library, cuda::Context context)
      : library_(library),
        status_(library.to_status("cuCtxPushCurrent", library->cuCtxPushCurrent_v2(context))) {}
  ~Current() {
    cuda::Context popped = nullptr;
    if (status_.is_ok()) (void)library_->cuCtxPopCurrent_v2(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  const Status& status() const { return status_; }

 private:
  const Library& library_;
  Status status_;
};

class CudaStream final : public GpuStream {
 public:
  CudaStream(const Library& library, cuda::Context context, cuda::Stream stream)
      : library_(library), context_(context), stream_(stream) {}
  ~CudaStream() override {
    const Current current(library_, context_);
    (void)library_->cuStreamDestroy_v2(stream_);  // outstanding copies are still carried out
  }

  Status copy_to_host(void* to, const void* from, std::size_t size) override {
    const Current current(library_, context_);
    DUNLIN_TRY(Status(current.status()));
    return library_.to_status("cuMemcpyDtoHAsync",
                              library_->cuMemcpyDtoHAsync_v2(to, address_of(from), size, stream_));
  }
  Status copy_to_device(void* to, const void* from, std::size_t size) override {
    const Current current(library_, context_);
    DUNLIN_TRY(Status(current.status()));
    return library_.to_status("cuMemcpyHtoDAsync",
                              library_->cuMemcpyHtoDAsync_v2(address_of(to), from, size, stream_));
  }
  Status poll() override {
    const Current current(library_, context_);
    DUNLIN_TRY(Status(current.status()));
    const cuda::Code code = library_->cuStreamQuery(stream_);
    return code == cuda::kNotReady ? Status::busy() : library_.to_status("cuStreamQuery", code);
  }

 private:
  const Library& library_;
  cuda::Context context_;
  cuda::Stream stream_;
};

class CudaDriver final : public GpuDriver {
 public:
  static Result<std::shared_ptr<GpuDriver>> create(Library library);

  const std::vector<GpuDevice>& devices() const override { return devices_; }
  Result<std::optional<GpuAllocation>> find(const void* address) override;
  Result<std::byte*> allocate(int device, std::size_t size) override;
  void free(int device, std::byte* data) noexcept override;
  Result<std::unique_ptr<GpuStream>> create_stream(int device) override;
  Status synchronize_operations(int device, std::byte* data) override;
  Result<DmaBuf> export_dma_buf(int device, std::byte* data, std::size_t size) override;
  Status flush_writes(int device) override;

 private:
  explicit CudaDriver(Library library) : library_(std::move(library)) {}
  Status describe(int number);
  int attribute(cuda::Device device, int which) const;
  Status peer_mapping(cuda::Device device) const;
  Status dma_buf(cuda::Device device) const;
  GpuWrites writes(cuda::Device device) const;
  // The context of the device, created by the first call: it takes hundreds of MiB and a second.
  Result<cuda::Context> context(int device);

  Library library_;
  std::vector<GpuDevice> devices_;
  std::mutex mutex_;
  std::vector<cuda::Context> contexts_;  // by device, under mutex_; null: not created yet
};

Result<std::shared_ptr<GpuDriver>> CudaDriver::create(Library library) {
  std::shared_ptr<CudaDriver> driver(new CudaDriver(std::move(library)));
  const Library& made = driver->library_;
  int count = 0;
  Status status = made.to_status("cuInit", made->cuInit(0));
  if (status.is_ok()) status = made.to_status("cuDeviceGetCount", made->cuDeviceGetCount(&count));
  if (!status.is_ok())
    return Status(Code::kUnavailable,
                  fmt::format("no CUDA device can be used: {}", status.message()));
  for (int number = 0; number < count; ++number) DUNLIN_TRY(driver->describe(number));
  if (count == 0) return Status(Code::kUnavailable, "the CUDA driver finds no device");
  driver->contexts_.resize(driver->devices_.size());
  return std::shared_ptr<GpuDriver>(std::move(driver));
}

Status CudaDriver::describe(int number) {
  GpuDevice found;
  found.number = number;
  cuda::Device device = 0;
  DUNLIN_TRY(library_.to_status("cuDeviceGet", library_->cuDeviceGet(&device, number)));
  char text[256] = "";
  if (library_->cuDeviceGetName(text, sizeof text, device) == cuda::kSuccess) found.name = text;
  found.pci_bus_id = library_.pci_bus_id(device);
  (void)library_->cuDeviceTotalMem_v2(&found.memory_bytes, device);
  found.compute_major = attribute(device, cuda::kComputeMajor);
  found.compute_minor = attribute(device, cuda::kComputeMinor);
  found.dma_buf = dma_buf(device);
  found.peer_mapping = peer_mapping(device);
  found.writes = writes(device);
  devices_.push_back(std::move(found));
  return Status::ok();
}

// 0 when the driver does not know the attribute; an older driver lacks the feature.
int CudaDriver::attribute(cuda::Device device, int which) const {
  int value = 0;
  return library_->cuDeviceGetAttribute(&value, which, device) == cuda::kSuccess ? value : 0;
}

Status CudaDriver::dma_buf(cuda::Device device) const {
  if (library_->cuMemGetHandleForAddressRange == nullptr)
    return {Code::kUnavailable,
            "the CUDA driver can't export memory as a dma-buf (11.7 or newer can)"};
  if (attribute(device, cuda::kDmaBufSupported) == 0) {
    return {Code::kUnavailable,
            "the driver cannot export the memory of this device as a dma-buf (the open kernel "
            "modules can)"};
  }
  return Status::ok();
}

Status CudaDriver::peer_mapping(cuda::Device device) const {
  if (attribute(device, cuda::kGpuDirectSupported) == 0)
    return {Code::kUnavailable, "the device has no GPUDirect RDMA"};
  if (access(kPeerMemoryModule, F_OK) != 0)
    return {Code::kUnavailable, "the kernel module nvidia-peermem is not loaded"};
  return Status::ok();
}

GpuWrites CudaDriver::writes(cuda::Device device) const {
  if (attribute(device, cuda::kWritesOrdering) >= cuda::kOrderedForOwner)
    return GpuWrites::kOrdered;
  const bool can_flush = library_->cuFlushGPUDirectRDMAWrites != nullptr &&
                         (attribute(device, cuda::kFlushOptions) & cuda::kFlushByHost) != 0;
  return can_flush ? GpuWrites::kNeedFlush : GpuWrites::kUnordered;
}

Result<cuda::Context> CudaDriver::context(int device) {
  if (device < 0 || static_cast<std::size_t>(device) >= devices_.size())
    return Status(Code::kOutOfRange, fmt::format("GPU {} of {}", device, devices_.size()));
  const std::lock_guard lock(mutex_);
  cuda::Context& made = contexts_[static_cast<std::size_t>(device)];
  if (made != nullptr) return made;
  cuda::Device handle = 0;
  DUNLIN_TRY(library_.to_status("cuDeviceGet", library_->cuDeviceGet(&handle, device)));
  DUNLIN_TRY(library_.to_status(fmt::format("cuDevicePrimaryCtxRetain of GPU {}", device),
                                library_->cuDevicePrimaryCtxRetain(&made, handle)));
  return made;
}

Result<std::optional<GpuAllocation>> CudaDriver::find(const void* address) {
  const auto ask = [&](int which, auto& value) {
    return library_->cuPointerGetAttribute(&value, which, address_of(address));
  };
  unsigned type = 0;
  const cuda::Code code = ask(cuda::kMemoryType, type);
  if (code == cuda::kInvalidValue)
    return std::optional<GpuAllocation>();  // the driver does not know the address
  DUNLIN_TRY(library_.to_status("cuPointerGetAttribute", code));
  unsigned is_managed = 0;
  if (ask(cuda::kIsManaged, is_managed) == cuda::kSuccess && is_managed != 0)
    return Status(Code::kUnavailable,
                  "CUDA managed memory cannot be registered, as it moves between host and device");
  if (type != cuda::kMemoryTypeDevice) return std::optional<GpuAllocation>();
  GpuAllocation found;
  DUNLIN_TRY(library_.to_status("cuPointerGetAttribute", ask(cuda::kDeviceOrdinal, found.device)));
  DUNLIN_ASSIGN(const cuda::Context own, context(found.device));
  const Current current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  cuda::Address base = 0;
  DUNLIN_TRY(library_.to_status(
      "cuMemGetAddressRange",
      library_->cuMemGetAddressRange_v2(&base, &found.size, address_of(address))));
  found.base = reinterpret_cast<std::byte*>(base);
  return std::optional(found);
}

Result<std::byte*> CudaDriver::allocate(int device, std::size_t size) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  const Current current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  cuda::Address address = 0;
  DUNLIN_TRY(library_.to_status(fmt::format("cuMemAlloc of {} bytes on GPU {}", size, device),
                                library_->cuMemAlloc_v2(&address, size)));
  return reinterpret_cast<std::byte*>(address);
}

void CudaDriver::free(int device, std::byte* data) noexcept {
  const auto own = context(device);
  if (!own) return;
  const Current current(library_, *own);
  const Status status = library_.to_status("cuMemFree", library_->cuMemFree_v2(address_of(data)));
  if (!status.is_ok()) DUNLIN_DEBUG("GPU {}: {}", device, status.message());
}

Result<std::unique_ptr<GpuStream>> CudaDriver::create_stream(int device) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  const Current current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  cuda::Stream stream = nullptr;
  DUNLIN_TRY(library_.to_status(fmt::format("cuStreamCreate on GPU {}", device),
                                library_->cuStreamCreate(&stream, cuda::kStreamNonBlocking)));
  return std::unique_ptr<GpuStream>(std::make_unique<CudaStream>(library_, own, stream));
}

Status CudaDriver::synchronize_operations(int device, std::byte* data) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  const Current current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  const unsigned yes = 1;
  return library_.to_status(
      "cuPointerSetAttribute(SYNC_MEMOPS)",
      library_->cuPointerSetAttribute(&yes, cuda::kSyncMemops, address_of(data)));
}

Result<DmaBuf> CudaDriver::export_dma_buf(int device, std::byte* data, std::size_t size) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  DUNLIN_TRY(Status(devices_[static_cast<std::size_t>(device)].dma_buf));
  const Current current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const cuda::Address begin = address_of(data) / page * page;
  const cuda::Address end = (address_of(data) + size + page - 1) / page * page;
  int fd = -1;
  DUNLIN_TRY(library_.to_status(
      "cuMemGetHandleForAddressRange",
      library_->cuMemGetHandleForAddressRange(&fd, begin, end - begin, cuda::kHandleIsDmaBuf, 0)));
  DmaBuf exported;
  exported.fd = Fd(fd);
  exported.offset = address_of(data) - begin;
  return exported;
}

Status CudaDriver::flush_writes(int device) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  if (library_->cuFlushGPUDirectRDMAWrites == nullptr)
    return {Code::kUnavailable,
            "the CUDA driver has no cuFlushGPUDirectRDMAWrites (11.3 or newer)"};
  const Current current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  return library_.to_status(
      "cuFlushGPUDirectRDMAWrites",
      library_->cuFlushGPUDirectRDMAWrites(cuda::kFlushCurrentContext, cuda::kFlushToOwner));
}

}  // namespace

Result<std::shared_ptr<GpuDriver>> load_cuda_driver(const std::string& name) {
  DUNLIN_ASSIGN(Library library, Library::load(name));
  return CudaDriver::create(std::move(library));
}

std::string current_gpu(const std::string& name) {
  if (dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr) return "";
  const auto library = Library::load(name);
  cuda::Device device = 0;
  if (!library || (*library)->cuCtxGetDevice(&device) != cuda::kSuccess) return "";
  return library->pci_bus_id(device);
}

}  // namespace dunlin
