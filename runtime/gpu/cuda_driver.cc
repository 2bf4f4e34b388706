#include "runtime/gpu/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "runtime/gpu/cuda_library.h"
#include "runtime/gpu/cuda_ranges.h"
#include "runtime/gpu/cuda_stream.h"
#include "runtime/log.h"

namespace dunlin {
namespace {

constexpr const char* kPeerMemoryModule = "/sys/module/nvidia_peermem";

// A number that no other process has.
std::uint64_t this_process() {
  static const std::uint64_t kDrawn = [] {
    std::uint64_t number = 0;
    randombytes_buf(&number, sizeof number);
    return number;
  }();
  return kDrawn ^ static_cast<std::uint64_t>(getpid());  // a forked child inherits the first
}

// The memory of other processes that this process has opened. CUDA opens an allocation once per
// process, however many objects use it, so this table belongs to the process, too.
struct OpenedMemory {
  struct Use {
    cuda::Address address = 0;
    int count = 0;
  };
  std::mutex mutex;
  std::map<std::tuple<int, std::uint64_t, std::uint64_t>, Use> uses;  // by device, process, buffer
};

// Never destroyed, because threads of a plugin may close memory while the process ends.
OpenedMemory& opened_memory() {
  static OpenedMemory* const kMade = new OpenedMemory;
  return *kMade;
}

class CudaDriver final : public GpuDriver, public GpuRanges {
 public:
  static Result<std::shared_ptr<GpuDriver>> create(const CudaLibrary& library);

  const std::vector<GpuDevice>& devices() const override { return devices_; }
  Result<std::optional<GpuAllocation>> find(const void* address) override;
  Result<std::byte*> allocate(int device, std::size_t size) override;
  void free(int device, std::byte* data) noexcept override;
  Status pin(int device, std::span<std::byte> memory) override;
  void unpin(int device, std::byte* data) noexcept override;
  Result<std::unique_ptr<GpuStream>> create_stream(int device) override;
  Result<std::unique_ptr<GpuEvent>> create_event(int device) override;
  Result<std::unique_ptr<GpuModule>> load_module(int device, const void* image) override;
  Result<SharedGpuMemory> share(int device, std::byte* base) override;
  Result<std::byte*> open(int device, const SharedGpuMemory& memory) override;
  bool close(int device, const SharedGpuMemory& memory) noexcept override;
  Result<ExportedGpuRange> export_range(int device, std::byte* data, std::size_t size) override;
  Result<std::unique_ptr<MappedGpuRange>> map_range(int device, std::span<const Fd> descriptors,
                                                    std::span<const std::uint64_t> sizes) override;
  Status synchronize_operations(int device, std::byte* data) override;
  Result<DmaBuf> export_dma_buf(int device, std::byte* data, std::size_t size) override;
  Status flush_writes(int device) override;

 private:
  explicit CudaDriver(const CudaLibrary& library) : library_(library) {}
  Status describe(int number);
  int attribute(cuda::Device device, int which) const;
  Status peer_mapping(cuda::Device device) const;
  Status dma_buf(cuda::Device device) const;
  GpuWrites writes(cuda::Device device) const;
  // The context of the device, created by the first call: it takes hundreds of MiB and a second.
  Result<cuda::Context> context(int device);

  CudaLibrary library_;
  std::vector<GpuDevice> devices_;
  std::mutex mutex_;
  std::vector<cuda::Context> contexts_;  // by device, under mutex_; null: not created yet
};

Result<std::shared_ptr<GpuDriver>> CudaDriver::create(const CudaLibrary& library) {
  std::shared_ptr<CudaDriver> driver(new CudaDriver(library));
  const CudaLibrary& made = driver->library_;
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
  found.processors = attribute(device, cuda::kProcessors);
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
  const RelaxedCapture relaxed(library_->cuThreadExchangeStreamCaptureMode);
  cuda::Device handle = 0;
  DUNLIN_TRY(library_.to_status("cuDeviceGet", library_->cuDeviceGet(&handle, device)));
  DUNLIN_TRY(library_.to_status(fmt::format("cuDevicePrimaryCtxRetain of GPU {}", device),
                                library_->cuDevicePrimaryCtxRetain(&made, handle)));
  return made;
}

Result<std::optional<GpuAllocation>> CudaDriver::find(const void* address) {
  const RelaxedCapture relaxed(library_->cuThreadExchangeStreamCaptureMode);
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
  const CurrentContext current(library_, own);
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
  const CurrentContext current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  cuda::Address address = 0;
  DUNLIN_TRY(library_.to_status(fmt::format("cuMemAlloc of {} bytes on GPU {}", size, device),
                                library_->cuMemAlloc_v2(&address, size)));
  return reinterpret_cast<std::byte*>(address);
}

void CudaDriver::free(int device, std::byte* data) noexcept {
  const auto own = context(device);
  if (!own) return;
  const CurrentContext current(library_, *own);
  const Status status = library_.to_status("cuMemFree", library_->cuMemFree_v2(address_of(data)));
  if (!status.is_ok()) DUNLIN_DEBUG("GPU {}: {}", device, status.message());
}

Status CudaDriver::pin(int device, std::span<std::byte> memory) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  const CurrentContext current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  return library_.to_status(
      fmt::format("cuMemHostRegister of {} bytes", memory.size()),
      library_->cuMemHostRegister_v2(memory.data(), memory.size(), cuda::kPinnedForAllContexts));
}

void CudaDriver::unpin(int device, std::byte* data) noexcept {
  const auto own = context(device);
  if (!own) return;
  const CurrentContext current(library_, *own);
  const Status status =
      library_.to_status("cuMemHostUnregister", library_->cuMemHostUnregister(data));
  if (!status.is_ok()) DUNLIN_DEBUG("GPU {}: {}", device, status.message());
}

Result<std::unique_ptr<GpuStream>> CudaDriver::create_stream(int device) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  return create_cuda_stream(library_, own, device);
}

Result<std::unique_ptr<GpuEvent>> CudaDriver::create_event(int device) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  return create_cuda_event(library_, own, device);
}

Result<std::unique_ptr<GpuModule>> CudaDriver::load_module(int device, const void* image) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  return load_cuda_module(library_, own, device, image);
}

// The handle stands for a whole allocation of cuMemAlloc. CUDA makes no such handles for memory
// from other sources (pools, and cuMemMap, whose memory export_range() is for).
Result<SharedGpuMemory> CudaDriver::share(int device, std::byte* base) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  const CurrentContext current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  SharedGpuMemory shared;
  const std::string& bus = devices_[static_cast<std::size_t>(device)].pci_bus_id;
  std::memcpy(shared.pci_bus_id.data(), bus.data(), std::min(bus.size(), shared.pci_bus_id.size()));
  shared.process = this_process();
  shared.address = address_of(base);
  DUNLIN_TRY(library_.to_status(
      "cuPointerGetAttribute(BUFFER_ID)",
      library_->cuPointerGetAttribute(&shared.buffer, cuda::kBufferId, address_of(base))));
  cuda::Address found = 0;
  std::size_t size = 0;
  DUNLIN_TRY(library_.to_status(
      "cuMemGetAddressRange", library_->cuMemGetAddressRange_v2(&found, &size, address_of(base))));
  if (found != address_of(base))
    return Status(Code::kInvalidArgument, "only whole GPU allocations can be shared");
  shared.size = size;
  cuda::IpcHandle handle{};
  const cuda::Code code = library_->cuIpcGetMemHandle(&handle, address_of(base));
  if (code == cuda::kInvalidValue)
    return Status(
        Code::kUnavailable,
        "CUDA cannot share this memory with other processes (cuIpcGetMemHandle refuses it); it can "
        "share what cuMemAlloc and cudaMalloc return");
  DUNLIN_TRY(library_.to_status("cuIpcGetMemHandle", code));
  static_assert(sizeof handle == sizeof shared.handle);
  std::memcpy(shared.handle.data(), &handle, sizeof handle);
  return shared;
}

Result<std::byte*> CudaDriver::open(int device, const SharedGpuMemory& memory) {
  if (memory.process == this_process()) return reinterpret_cast<std::byte*>(memory.address);
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  const std::lock_guard lock(opened_memory().mutex);
  auto& uses = opened_memory().uses;
  const auto key = std::make_tuple(device, memory.process, memory.buffer);
  if (const auto found = uses.find(key); found != uses.end()) {
    ++found->second.count;
    return reinterpret_cast<std::byte*>(found->second.address);
  }
  const CurrentContext current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  cuda::IpcHandle handle{};
  std::memcpy(&handle, memory.handle.data(), sizeof handle);
  cuda::Address address = 0;
  const cuda::Code code =
      library_->cuIpcOpenMemHandle_v2(&address, handle, cuda::kIpcLazyPeerAccess);
  Status status = library_.to_status(
      fmt::format("cuIpcOpenMemHandle of {} bytes for GPU {}", memory.size, device), code);
  if (code == cuda::kInvalidHandle || code == cuda::kInvalidValue || code == cuda::kMapFailed)
    return Status(Code::kNotFound, std::string(status.message()));
  DUNLIN_TRY(std::move(status));
  uses[key] = {address, 1};
  return reinterpret_cast<std::byte*>(address);
}

bool CudaDriver::close(int device, const SharedGpuMemory& memory) noexcept {
  if (memory.process == this_process()) return true;
  const std::lock_guard lock(opened_memory().mutex);
  const auto found = opened_memory().uses.find({device, memory.process, memory.buffer});
  if (found == opened_memory().uses.end() || --found->second.count > 0) return true;
  const cuda::Address address = found->second.address;
  opened_memory().uses.erase(found);
  const auto own = context(device);
  if (!own) return false;
  const CurrentContext current(library_, *own);
  const Status status =
      library_.to_status("cuIpcCloseMemHandle", library_->cuIpcCloseMemHandle(address));
  if (!status.is_ok()) DUNLIN_DEBUG("GPU {}: {}", device, status.message());
  return status.is_ok();
}

Result<ExportedGpuRange> CudaDriver::export_range(int device, std::byte* data, std::size_t size) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  DUNLIN_ASSIGN(ExportedGpuRange range, export_cuda_range(library_, own, data, size));
  range.pci_bus_id = devices_[static_cast<std::size_t>(device)].pci_bus_id;
  return range;
}

Result<std::unique_ptr<MappedGpuRange>> CudaDriver::map_range(
    int device, std::span<const Fd> descriptors, std::span<const std::uint64_t> sizes) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  return map_cuda_range(library_, own, device, descriptors, sizes);
}

Status CudaDriver::synchronize_operations(int device, std::byte* data) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  const CurrentContext current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  const unsigned yes = 1;
  const cuda::Code code =
      library_->cuPointerSetAttribute(&yes, cuda::kSyncMemops, address_of(data));
  // Memory of cuMemCreate() does not have the attribute. A flag does the same for what is started
  // in the primary context. It is set once: to set it takes a lock that a thread holds which starts
  // kernels.
  const bool has_flag = library_->cuCtxSetFlags != nullptr && library_->cuCtxGetFlags != nullptr;
  if (code != cuda::kNotSupported || !has_flag)
    return library_.to_status("cuPointerSetAttribute(SYNC_MEMOPS)", code);
  unsigned flags = 0;
  DUNLIN_TRY(library_.to_status("cuCtxGetFlags", library_->cuCtxGetFlags(&flags)));
  if ((flags & cuda::kContextSyncMemops) != 0) return Status::ok();
  return library_.to_status("cuCtxSetFlags(SYNC_MEMOPS)",
                            library_->cuCtxSetFlags(flags | cuda::kContextSyncMemops));
}

Result<DmaBuf> CudaDriver::export_dma_buf(int device, std::byte* data, std::size_t size) {
  DUNLIN_ASSIGN(const cuda::Context own, context(device));
  DUNLIN_TRY(Status(devices_[static_cast<std::size_t>(device)].dma_buf));
  const CurrentContext current(library_, own);
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
  const CurrentContext current(library_, own);
  DUNLIN_TRY(Status(current.status()));
  return library_.to_status(
      "cuFlushGPUDirectRDMAWrites",
      library_->cuFlushGPUDirectRDMAWrites(cuda::kFlushCurrentContext, cuda::kFlushToOwner));
}

}  // namespace

// A process has one CUDA, so all its users share a driver as long as any of them holds it.
Result<std::shared_ptr<GpuDriver>> load_cuda_driver(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<GpuDriver>> loaded;
  const std::lock_guard lock(mutex);
  if (auto driver = loaded[name].lock()) return driver;
  DUNLIN_ASSIGN(const CudaLibrary library, CudaLibrary::load(name));
  DUNLIN_ASSIGN(auto driver, CudaDriver::create(library));
  loaded[name] = driver;
  return driver;
}

int cuda_version(const std::string& name) {
  const auto library = CudaLibrary::load(name);
  int version = 0;
  if (!library || (*library)->cuDriverGetVersion == nullptr) return 0;
  return (*library)->cuDriverGetVersion(&version) == cuda::kSuccess ? version : 0;
}

Status cuda_peer_access(int device, int peer, const std::string& name) {
  DUNLIN_ASSIGN(const CudaLibrary library, CudaLibrary::load(name));
  if (library->cuDeviceCanAccessPeer == nullptr)
    return {Code::kUnavailable, "the CUDA driver has no cuDeviceCanAccessPeer"};
  cuda::Device handles[2] = {};
  DUNLIN_TRY(library.to_status("cuDeviceGet", library->cuDeviceGet(&handles[0], device)));
  DUNLIN_TRY(library.to_status("cuDeviceGet", library->cuDeviceGet(&handles[1], peer)));
  int can = 0;
  DUNLIN_TRY(library.to_status("cuDeviceCanAccessPeer",
                               library->cuDeviceCanAccessPeer(&can, handles[0], handles[1])));
  if (can != 0) return Status::ok();
  return {Code::kUnavailable,
          fmt::format("GPU {} cannot access the memory of GPU {} directly", device, peer)};
}

std::string current_gpu(const std::string& name) {
  if (dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr) return "";
  const auto library = CudaLibrary::load(name);
  cuda::Device device = 0;
  if (!library || (*library)->cuCtxGetDevice(&device) != cuda::kSuccess) return "";
  return library->pci_bus_id(device);
}

}  // namespace dunlin
