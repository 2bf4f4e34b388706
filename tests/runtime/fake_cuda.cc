// A replacement for libcuda.so.1 over host memory. It has the functions that
// runtime/gpu/cuda_driver.cc uses, and is as strict as the real library about contexts and
// alignment. With FAKE_CUDA_IS_OLD, it lacks the functions that older drivers lack. One thread.
#include "tests/runtime/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "runtime/gpu/cuda_interface.h"

namespace dunlin::testing {
namespace {

using cuda::Address;
using cuda::Code;
using cuda::Context;
using cuda::Device;
using cuda::Stream;

constexpr Code kInvalidContext = 201;
constexpr Code kOk = cuda::kSuccess;

struct Allocation {
  int device;
  std::size_t size;
};
struct Copy {
  void* to;
  const void* from;
  std::size_t size;
};

FakeCuda state;
std::map<Address, Allocation> allocations;
std::vector<int> current;  // devices
std::vector<Copy> copies;
int queries = 0;

std::map<Address, Allocation>::iterator allocation_of(Address address) {
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return allocations.end();
  --next;
  return address < next->first + next->second.size ? next : allocations.end();
}

Code begin_copy(void* to, const void* from, std::size_t size) {
  if (current.empty()) return kInvalidContext;
  copies.push_back({to, from, size});
  return kOk;
}

}  // namespace
}  // namespace dunlin::testing

using namespace dunlin::testing;  // NOLINT: the functions below have C linkage

extern "C" {

FakeCuda& fake_cuda() {
  return state;
}

Code cuInit(unsigned) {
  return state.init_code;
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
  *count = state.devices;
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
  *value = state.attributes.contains(attribute) ? state.attributes[attribute] : 0;
  return kOk;
}
Code cuDeviceGetPCIBusId(char* id, int size, Device device) {
  std::strncpy(id, device == 0 ? "0000:3B:00.0" : "0000:AF:00.0", static_cast<std::size_t>(size));
  return kOk;
}
Code cuDevicePrimaryCtxRetain(Context* context, Device device) {
  ++state.contexts;
  *context = reinterpret_cast<Context>(static_cast<std::uintptr_t>(device) + 1);
  return kOk;
}
Code cuCtxGetDevice(Device* device) {
  if (current.empty()) return kInvalidContext;
  *device = current.back();
  return kOk;
}
Code cuCtxPushCurrent_v2(Context context) {
  current.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 1));
  state.depth = static_cast<int>(current.size());
  return kOk;
}
Code cuCtxPopCurrent_v2(Context*) {
  current.pop_back();
  state.depth = static_cast<int>(current.size());
  return kOk;
}
Code cuMemAlloc_v2(Address* address, std::size_t size) {
  if (current.empty()) return kInvalidContext;
  if (state.alloc_code != kOk) return state.alloc_code;
  *address = reinterpret_cast<Address>(std::malloc(size));
  allocations[*address] = {current.back(), size};
  state.allocations = static_cast<int>(allocations.size());
  return kOk;
}
Code cuMemFree_v2(Address address) {
  if (current.empty()) return kInvalidContext;
  if (allocations.erase(address) == 0) return dunlin::cuda::kInvalidValue;
  std::free(reinterpret_cast<void*>(address));
  state.allocations = static_cast<int>(allocations.size());
  return kOk;
}
Code cuMemGetAddressRange_v2(Address* base, std::size_t* size, Address address) {
  if (current.empty()) return kInvalidContext;
  const auto found = allocation_of(address);
  if (found == allocations.end()) return dunlin::cuda::kInvalidValue;
  *base = found->first;
  *size = found->second.size;
  return kOk;
}
Code cuPointerGetAttribute(void* value, int attribute, Address address) {
  const auto found = allocation_of(address);
  if (found == allocations.end()) return dunlin::cuda::kInvalidValue;
  if (attribute == dunlin::cuda::kMemoryType)
    *static_cast<unsigned*>(value) = dunlin::cuda::kMemoryTypeDevice;
  if (attribute == dunlin::cuda::kIsManaged) *static_cast<unsigned*>(value) = state.is_managed;
  if (attribute == dunlin::cuda::kDeviceOrdinal) *static_cast<int*>(value) = found->second.device;
  return kOk;
}
Code cuPointerSetAttribute(const void* value, int attribute, Address address) {
  if (current.empty()) return kInvalidContext;
  const bool is_right = attribute == dunlin::cuda::kSyncMemops &&
                        *static_cast<const unsigned*>(value) == 1 &&
                        allocation_of(address) != allocations.end();
  if (!is_right) return dunlin::cuda::kInvalidValue;
  ++state.synchronized_pointers;
  return kOk;
}
Code cuStreamCreate(Stream* stream, unsigned flags) {
  if (current.empty()) return kInvalidContext;
  if (flags != dunlin::cuda::kStreamNonBlocking) return dunlin::cuda::kInvalidValue;
  ++state.streams;
  *stream = reinterpret_cast<Stream>(&copies);
  return kOk;
}
Code cuStreamDestroy_v2(Stream) {
  --state.streams;
  return kOk;
}
Code cuStreamQuery(Stream) {
  if (copies.empty()) return kOk;
  if (++queries < state.queries_per_copy) return dunlin::cuda::kNotReady;
  queries = 0;
  for (const auto& copy : copies) std::memcpy(copy.to, copy.from, copy.size);
  copies.clear();
  return state.copy_code;
}
Code cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t size, Stream) {
  return begin_copy(reinterpret_cast<void*>(to), from, size);
}
Code cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t size, Stream) {
  return begin_copy(to, reinterpret_cast<const void*>(from), size);
}

#ifndef FAKE_CUDA_IS_OLD
Code cuFlushGPUDirectRDMAWrites(int target, int scope) {
  if (current.empty()) return kInvalidContext;
  if (target != dunlin::cuda::kFlushCurrentContext || scope != dunlin::cuda::kFlushToOwner)
    return dunlin::cuda::kInvalidValue;
  ++state.flushes;
  return kOk;
}
Code cuMemGetHandleForAddressRange(void* handle, Address address, std::size_t size, int type,
                                   unsigned long long flags) {
  const auto page = static_cast<Address>(sysconf(_SC_PAGESIZE));
  const bool is_right = address % page == 0 && size % page == 0 && flags == 0 &&
                        type == dunlin::cuda::kHandleIsDmaBuf;
  if (!is_right) return dunlin::cuda::kInvalidValue;
  *static_cast<int*>(handle) = memfd_create("fake-dma-buf", MFD_CLOEXEC);
  return kOk;
}
#endif
}
