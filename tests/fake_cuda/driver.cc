// The functions of the stand-in for libcuda.so.1, which is as strict as the real library about
// contexts, alignment and handles. With FAKE_CUDA_IS_OLD, it lacks the functions that older drivers
// lack.
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/fake_cuda/driver_state.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/work.h"

namespace dunlin::testing {
namespace {

using cuda::Address;
using cuda::Code;
using cuda::Context;
using cuda::Device;
using cuda::Event;
using cuda::Function;
using cuda::IpcHandle;
using cuda::Module;
using cuda::Stream;

constexpr Code kOk = cuda::kSuccess;

struct FakeModule {};

Code begin_copy(Stream stream, void* to, const void* from, std::size_t size,
                std::shared_ptr<FakePages> first, std::shared_ptr<FakePages> second = nullptr) {
  const auto found = state().find(stream);
  if (found == nullptr) return cuda::kInvalidHandle;
  found->add([=, pages = std::pair(std::move(first), std::move(second))] {
    if (size > 0) std::memmove(to, from, size);
    auto* const first_byte = static_cast<unsigned char*>(to);
    if (++state().copies == state().corrupted_copy && size > 0) ++*first_byte;
  });
  return kOk;
}

// The place of a device's bytes for the CPU, and the pages, which stay while they are held.
struct Place {
  std::byte* data = nullptr;
  std::shared_ptr<FakePages> pages;
};

Place place_of(Address address, std::size_t size) {
  const FakeAllocation found = state().memory.find(address, size);
  if (found.pages == nullptr) return {};
  const auto base = reinterpret_cast<Address>(found.pages->address());
  return {found.pages->contents() + (address - base), found.pages};
}

}  // namespace

cuda::Code fake_enter(const char* name) {
  return state().enter(name);
}
FakeRanges& fake_ranges() {
  return state().memory.ranges();
}

}  // namespace dunlin::testing

using namespace dunlin::testing;  // NOLINT: the functions below have C linkage

// Begins a function that needs a current context.
#define FAKE_ENTER(name)                                                     \
  if (const Code failed = state().enter(name); failed != kOk) return failed; \
  if (State::current.empty()) return dunlin::cuda::kInvalidContext

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's.
extern "C" {

FakeCuda& fake_cuda() {
  return state();
}

// For tests in Python: a gate in a stream, whose work goes on when the gate is opened, once.
void* fake_cuda_gate(Stream stream) {
  auto* const gate = new std::shared_ptr<FakeMark>(std::make_shared<FakeMark>());
  state().find(stream)->add_wait(*gate);
  return gate;
}
void fake_cuda_open(void* gate) {
  const std::unique_ptr<std::shared_ptr<FakeMark>> closed(
      static_cast<std::shared_ptr<FakeMark>*>(gate));
  (*closed)->reach();
}
// Which memory claims to be managed memory: all of it, or none.
void fake_cuda_manage(int all) {
  state().is_managed = all != 0;
}
// The next call of this function fails.
void fake_cuda_fail(const char* name) {
  state().failing_name = name;
  state().failing_call = 1;
}
// The number of allocations, of copies from and to host memory so far, of streams, of events and of
// all copies so far.
void fake_cuda_counts(std::uint64_t* counts) {
  counts[0] = static_cast<std::uint64_t>(state().allocations());
  counts[1] = state().host_copies;
  counts[2] = static_cast<std::uint64_t>(state().streams);
  counts[3] = static_cast<std::uint64_t>(state().events);
  counts[4] = state().copies;
  counts[5] = static_cast<std::uint64_t>(state().pinned);
}
// The number of allocations that have this size.
std::uint64_t fake_cuda_allocations_of(std::uint64_t size) {
  return static_cast<std::uint64_t>(state().memory.count_of(size));
}

Code cuInit(unsigned) {
  return state().init_code;
}
Code cuGetErrorName(Code code, const char** name) {
  *name = code == kOk ? "CUDA_SUCCESS" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return kOk;
}
Code cuGetErrorString(Code, const char** text) {
  *text = "the fake says so";
  return kOk;
}
Code cuDeviceGetCount(int* count) {
  *count = state().devices;
  return kOk;
}
Code cuDeviceGet(Device* device, int number) {
  *device = number;
  return kOk;
}
Code cuDeviceGetName(char* name, int size, Device) {
  std::strncpy(name, "Fake A1", static_cast<std::size_t>(size));
  return kOk;
}
Code cuDeviceTotalMem_v2(std::size_t* bytes, Device) {
  *bytes = std::size_t{1} << 34;
  return kOk;
}
Code cuDeviceGetAttribute(int* value, int attribute, Device) {
  const auto& attributes = state().attributes;
  const auto found = attributes.find(attribute);
  *value = found != attributes.end()                ? found->second
           : attribute == dunlin::cuda::kProcessors ? 2
                                                    : 0;
  return kOk;
}
Code cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}
Code cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, State::capture_mode);
  return kOk;
}
Code cuStreamIsCapturing(Stream stream, int* status) {
  void* const captured = state().captured_stream;
  if (captured != nullptr && stream == nullptr) return dunlin::cuda::kCaptureImplicit;
  *status = captured != nullptr && stream == captured ? 1 : 0;
  return kOk;
}
Code cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  *can = device != peer && state().has_peer_access;
  return kOk;
}
Code cuDeviceGetPCIBusId(char* id, int size, Device device) {
  std::strncpy(id, device == 0 ? "0000:3B:00.0" : "0000:AF:00.0", static_cast<std::size_t>(size));
  return kOk;
}
Code cuDevicePrimaryCtxRetain(Context* context, Device device) {
  if (const Code failed = state().enter("cuDevicePrimaryCtxRetain"); failed != kOk) return failed;
  ++state().contexts;
  *context = reinterpret_cast<Context>(static_cast<std::uintptr_t>(device) + 1);
  return kOk;
}
Code cuCtxGetDevice(Device* device) {
  if (State::current.empty()) return dunlin::cuda::kInvalidContext;
  *device = State::current.back();
  return kOk;
}
Code cuCtxPushCurrent_v2(Context context) {
  if (const Code failed = state().enter("cuCtxPushCurrent"); failed != kOk) return failed;
  State::current.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 1));
  return kOk;
}
Code cuCtxPopCurrent_v2(Context*) {
  if (State::current.empty()) return dunlin::cuda::kInvalidContext;
  State::current.pop_back();
  return kOk;
}

Code cuMemAlloc_v2(Address* address, std::size_t size) {
  FAKE_ENTER("cuMemAlloc");
  return state().memory.allocate(State::current.back(), size, address);
}
Code cuMemFree_v2(Address address) {
  FAKE_ENTER("cuMemFree");
  bool was_open = false;
  const Code code = state().memory.free(address, &was_open);
  if (was_open) ++state().freed_while_open;
  return code;
}
Code cuMemHostRegister_v2(void* data, std::size_t size, unsigned flags) {
  FAKE_ENTER("cuMemHostRegister");
  if (data == nullptr || size == 0 || flags != dunlin::cuda::kPinnedForAllContexts)
    return dunlin::cuda::kInvalidValue;
  return state().pin(data, size);
}
Code cuMemHostUnregister(void* data) {
  FAKE_ENTER("cuMemHostUnregister");
  return state().unpin(data);
}
Code cuMemGetAddressRange_v2(Address* base, std::size_t* size, Address address) {
  FAKE_ENTER("cuMemGetAddressRange");
  const FakeAllocation found = state().memory.find(address);
  if (found.pages == nullptr) return dunlin::cuda::kInvalidValue;
  *base = reinterpret_cast<Address>(found.pages->address());
  *size = found.size;
  return kOk;
}
Code cuPointerGetAttribute(void* value, int attribute, Address address) {
  if (const Code failed = state().enter("cuPointerGetAttribute"); failed != kOk) return failed;
  const FakeAllocation found = state().memory.find(address);
  if (found.pages == nullptr) return dunlin::cuda::kInvalidValue;
  switch (attribute) {
    case dunlin::cuda::kMemoryType:
      *static_cast<unsigned*>(value) = dunlin::cuda::kMemoryTypeDevice;
      return kOk;
    case dunlin::cuda::kIsManaged:
      *static_cast<unsigned*>(value) = state().is_managed;
      return kOk;
    case dunlin::cuda::kDeviceOrdinal:
      *static_cast<int*>(value) = found.device;
      return kOk;
    case dunlin::cuda::kBufferId:
      *static_cast<std::uint64_t*>(value) = found.buffer;
      return kOk;
    default:
      return dunlin::cuda::kInvalidValue;
  }
}
Code cuPointerSetAttribute(const void* value, int attribute, Address address) {
  FAKE_ENTER("cuPointerSetAttribute");
  const bool is_right = attribute == dunlin::cuda::kSyncMemops &&
                        *static_cast<const unsigned*>(value) == 1 &&
                        state().memory.find(address).pages != nullptr;
  if (!is_right) return dunlin::cuda::kInvalidValue;
  if (state().memory.find(address).is_virtual) return dunlin::cuda::kNotSupported;
  ++state().synchronized_pointers;
  return kOk;
}

Code cuCtxGetFlags(unsigned* flags) {
  FAKE_ENTER("cuCtxGetFlags");
  *flags = state().context_flags;
  return kOk;
}
Code cuCtxSetFlags(unsigned flags) {
  FAKE_ENTER("cuCtxSetFlags");
  state().context_flags = flags;
  ++state().context_flag_sets;
  return kOk;
}

Code cuIpcGetMemHandle(IpcHandle* handle, Address address) {
  FAKE_ENTER("cuIpcGetMemHandle");
  return state().memory.share(address, handle);
}
Code cuIpcOpenMemHandle_v2(Address* address, IpcHandle handle, unsigned flags) {
  FAKE_ENTER("cuIpcOpenMemHandle");
  if (flags != dunlin::cuda::kIpcLazyPeerAccess) return dunlin::cuda::kInvalidValue;
  return state().memory.open(State::current.back(), handle, address);
}
Code cuIpcCloseMemHandle(Address address) {
  FAKE_ENTER("cuIpcCloseMemHandle");
  return state().memory.close(address);
}

Code cuStreamCreate(Stream* stream, unsigned flags) {
  FAKE_ENTER("cuStreamCreate");
  if (flags != dunlin::cuda::kStreamNonBlocking) return dunlin::cuda::kInvalidValue;
  ++state().streams;
  *stream = reinterpret_cast<Stream>(state().create_stream());
  return kOk;
}
Code cuStreamDestroy_v2(Stream stream) {
  FAKE_ENTER("cuStreamDestroy");
  const auto found = state().find(stream);
  if (stream == nullptr || found == nullptr) return dunlin::cuda::kInvalidHandle;
  --state().streams;
  found->close();
  state().forget(found);
  return kOk;
}
Code cuStreamQuery(Stream stream) {
  FAKE_ENTER("cuStreamQuery");
  const auto found = state().find(stream);
  if (found == nullptr) return dunlin::cuda::kInvalidHandle;
  if (!found->is_idle()) return dunlin::cuda::kNotReady;
  return state().pace.sticky();
}
Code cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t size, Stream stream) {
  FAKE_ENTER("cuMemcpyHtoDAsync");
  if (!state().is_pinned(from, size)) ++state().host_copies;
  const Place target = place_of(to, size);
  if (target.data == nullptr) return dunlin::cuda::kInvalidValue;
  return begin_copy(stream, target.data, from, size, target.pages);
}
Code cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t size, Stream stream) {
  FAKE_ENTER("cuMemcpyDtoHAsync");
  if (!state().is_pinned(to, size)) ++state().host_copies;
  const Place source = place_of(from, size);
  if (source.data == nullptr) return dunlin::cuda::kInvalidValue;
  return begin_copy(stream, to, source.data, size, source.pages);
}
Code cuMemcpyAsync(Address to, Address from, std::size_t size, Stream stream) {
  FAKE_ENTER("cuMemcpyAsync");
  const Place target = place_of(to, size);
  const Place source = place_of(from, size);
  if (target.data == nullptr || source.data == nullptr) return dunlin::cuda::kInvalidValue;
  return begin_copy(stream, target.data, source.data, size, target.pages, source.pages);
}

Code cuEventCreate(Event* event, unsigned flags) {
  FAKE_ENTER("cuEventCreate");
  if (flags != dunlin::cuda::kEventDisableTiming) return dunlin::cuda::kInvalidValue;
  ++state().events;
  *event = reinterpret_cast<Event>(new FakeEvent);
  return kOk;
}
Code cuEventDestroy_v2(Event event) {
  FAKE_ENTER("cuEventDestroy");
  --state().events;
  delete reinterpret_cast<FakeEvent*>(event);
  return kOk;
}
Code cuEventRecord(Event event, Stream stream) {
  FAKE_ENTER("cuEventRecord");
  const auto found = state().find(stream);
  if (found == nullptr) return dunlin::cuda::kInvalidHandle;
  auto& recorded = *reinterpret_cast<FakeEvent*>(event);
  const std::lock_guard lock(recorded.mutex);
  recorded.mark = std::make_shared<FakeMark>();
  found->add_mark(recorded.mark);
  return kOk;
}
Code cuEventQuery(Event event) {
  FAKE_ENTER("cuEventQuery");
  auto& recorded = *reinterpret_cast<FakeEvent*>(event);
  const std::lock_guard lock(recorded.mutex);
  if (recorded.mark != nullptr && !recorded.mark->is_reached()) return dunlin::cuda::kNotReady;
  return state().pace.sticky();
}
Code cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  FAKE_ENTER("cuStreamWaitEvent");
  const auto found = state().find(stream);
  if (found == nullptr) return dunlin::cuda::kInvalidHandle;
  if (flags != 0) return dunlin::cuda::kInvalidValue;
  auto& recorded = *reinterpret_cast<FakeEvent*>(event);
  const std::lock_guard lock(recorded.mutex);
  if (recorded.mark != nullptr) found->add_wait(recorded.mark);
  return kOk;
}

// The image is not looked at: the kernels are the host's build.
Code cuModuleLoadData(Module* module, const void* image) {
  FAKE_ENTER("cuModuleLoadData");
  if (image == nullptr) return dunlin::cuda::kInvalidValue;
  ++state().modules;
  *module = reinterpret_cast<Module>(new FakeModule);
  return kOk;
}
Code cuModuleUnload(Module module) {
  FAKE_ENTER("cuModuleUnload");
  --state().modules;
  delete reinterpret_cast<FakeModule*>(module);
  return kOk;
}
Code cuModuleGetFunction(Function* function, Module, const char* name) {
  FAKE_ENTER("cuModuleGetFunction");
  const FakeKernel* const found = find_kernel(name);
  if (found == nullptr) return dunlin::cuda::kNotFound;
  *function = reinterpret_cast<Function>(const_cast<FakeKernel*>(found));
  return kOk;
}
Code cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                    Stream stream, void** parameters, void** extra) {
  FAKE_ENTER("cuLaunchKernel");
  const auto found = state().find(stream);
  if (found == nullptr || function == nullptr) return dunlin::cuda::kInvalidHandle;
  const bool is_right = grid_x > 0 && block_x > 0 && block_x <= 1024 && grid_y == 1 &&
                        grid_z == 1 && block_y == 1 && block_z == 1 && shared == 0 &&
                        parameters != nullptr && extra == nullptr;
  if (!is_right) return dunlin::cuda::kInvalidValue;
  std::function<void()> run;
  const Code code = prepare_kernel(*reinterpret_cast<const FakeKernel*>(function), state().memory,
                                   parameters[0], {grid_x, block_x}, &run);
  // A GPU finds these when it runs the kernel.
  found->add([code, run = std::move(run)] {
    if (code != kOk) return state().pace.fail(code);
    run();
    ++state().launches;
  });
  return kOk;
}

#ifndef FAKE_CUDA_IS_OLD
Code cuFlushGPUDirectRDMAWrites(int target, int scope) {
  FAKE_ENTER("cuFlushGPUDirectRDMAWrites");
  if (target != dunlin::cuda::kFlushCurrentContext || scope != dunlin::cuda::kFlushToOwner)
    return dunlin::cuda::kInvalidValue;
  ++state().flushes;
  return kOk;
}
Code cuMemGetHandleForAddressRange(void* handle, Address address, std::size_t size, int type,
                                   unsigned long long flags) {
  FAKE_ENTER("cuMemGetHandleForAddressRange");
  const auto page = static_cast<Address>(sysconf(_SC_PAGESIZE));
  const bool is_right = address % page == 0 && size % page == 0 && flags == 0 &&
                        type == dunlin::cuda::kHandleIsDmaBuf;
  if (!is_right) return dunlin::cuda::kInvalidValue;
  const FakeAllocation found = state().memory.find(address);
  if (found.pages == nullptr) return dunlin::cuda::kInvalidValue;
  *static_cast<int*>(handle) = dup(found.pages->fd());
  return kOk;
}
#endif
}
// NOLINTEND(readability-identifier-naming)
