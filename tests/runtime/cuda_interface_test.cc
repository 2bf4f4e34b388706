// Checks at compile time that runtime/gpu/cuda_interface.h agrees with cuda.h. It is built when the
// CUDA toolkit is installed.
#include <cuda.h>

#include <type_traits>

#include "runtime/gpu/cuda_interface.h"

namespace {

namespace ours = dunlin::cuda;

// Whether two types are the same in the binary interface: integers of one size, or two pointers.
template <typename Ours, typename Theirs>
constexpr bool kIsSame =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;

template <typename Ours, typename Theirs>
struct SameFunction : std::false_type {};
template <typename Ours, typename... OurArguments, typename Theirs, typename... TheirArguments>
struct SameFunction<Ours (*)(OurArguments...), Theirs(TheirArguments...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(OurArguments) != sizeof...(TheirArguments)) {
      return false;
    } else {
      return kIsSame<Ours, Theirs> && (kIsSame<OurArguments, TheirArguments> && ...);
    }
  }();
};

#define SAME_FUNCTION(name) \
  static_assert(SameFunction<decltype(ours::Functions::name), decltype(::name)>::value)
// cuda.h maps the name of a function to the exported name of its newest version, which has a
// suffix.
SAME_FUNCTION(cuInit);
SAME_FUNCTION(cuGetErrorName);
SAME_FUNCTION(cuGetErrorString);
SAME_FUNCTION(cuDeviceGetCount);
SAME_FUNCTION(cuDeviceGet);
SAME_FUNCTION(cuDeviceGetName);
SAME_FUNCTION(cuDeviceTotalMem_v2);
SAME_FUNCTION(cuDeviceGetAttribute);
SAME_FUNCTION(cuDeviceGetPCIBusId);
SAME_FUNCTION(cuDevicePrimaryCtxRetain);
SAME_FUNCTION(cuCtxGetDevice);
SAME_FUNCTION(cuCtxPushCurrent_v2);
SAME_FUNCTION(cuCtxPopCurrent_v2);
SAME_FUNCTION(cuMemCreate);
SAME_FUNCTION(cuMemRelease);
SAME_FUNCTION(cuMemAddressReserve);
SAME_FUNCTION(cuMemAddressFree);
SAME_FUNCTION(cuMemMap);
SAME_FUNCTION(cuMemUnmap);
SAME_FUNCTION(cuMemSetAccess);
SAME_FUNCTION(cuMemRetainAllocationHandle);
SAME_FUNCTION(cuMemGetAllocationPropertiesFromHandle);
SAME_FUNCTION(cuMemExportToShareableHandle);
SAME_FUNCTION(cuMemImportFromShareableHandle);
SAME_FUNCTION(cuMemAlloc_v2);
SAME_FUNCTION(cuMemFree_v2);
SAME_FUNCTION(cuMemHostRegister_v2);
SAME_FUNCTION(cuMemHostUnregister);
SAME_FUNCTION(cuMemGetAddressRange_v2);
SAME_FUNCTION(cuPointerGetAttribute);
SAME_FUNCTION(cuPointerSetAttribute);
SAME_FUNCTION(cuStreamCreate);
SAME_FUNCTION(cuStreamDestroy_v2);
SAME_FUNCTION(cuStreamQuery);
SAME_FUNCTION(cuMemcpyHtoDAsync_v2);
SAME_FUNCTION(cuMemcpyDtoHAsync_v2);
SAME_FUNCTION(cuMemcpyAsync);
SAME_FUNCTION(cuStreamWaitEvent);
SAME_FUNCTION(cuEventCreate);
SAME_FUNCTION(cuEventDestroy_v2);
SAME_FUNCTION(cuEventRecord);
SAME_FUNCTION(cuEventQuery);
SAME_FUNCTION(cuModuleLoadData);
SAME_FUNCTION(cuModuleUnload);
SAME_FUNCTION(cuModuleGetFunction);
SAME_FUNCTION(cuLaunchKernel);
SAME_FUNCTION(cuIpcGetMemHandle);
SAME_FUNCTION(cuIpcOpenMemHandle_v2);
SAME_FUNCTION(cuIpcCloseMemHandle);
SAME_FUNCTION(cuFlushGPUDirectRDMAWrites);
SAME_FUNCTION(cuMemGetHandleForAddressRange);
SAME_FUNCTION(cuCtxSetFlags);
SAME_FUNCTION(cuCtxGetFlags);
SAME_FUNCTION(cuDriverGetVersion);
SAME_FUNCTION(cuDeviceCanAccessPeer);
SAME_FUNCTION(cuThreadExchangeStreamCaptureMode);
SAME_FUNCTION(cuStreamIsCapturing);

static_assert(kIsSame<ours::Code, CUresult> && kIsSame<ours::Device, CUdevice>);
static_assert(std::is_same_v<ours::Address, CUdeviceptr>);
static_assert(ours::kSuccess == CUDA_SUCCESS && ours::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(ours::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(ours::kNoDevice == CUDA_ERROR_NO_DEVICE && ours::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(ours::kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(ours::kMapFailed == CUDA_ERROR_MAP_FAILED);
static_assert(ours::kAlreadyMapped == CUDA_ERROR_ALREADY_MAPPED);
static_assert(ours::kNoBinary == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(ours::kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(ours::kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(ours::kProcessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(ours::kBufferId == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(ours::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(ours::kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(sizeof(ours::IpcHandle) == sizeof(CUipcMemHandle));
static_assert(ours::kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(ours::kComputeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(ours::kComputeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(ours::kGpuDirectSupported == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
static_assert(ours::kFlushOptions == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
static_assert(ours::kWritesOrdering == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
static_assert(ours::kDmaBufSupported == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
static_assert(ours::kFlushByHost == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
static_assert(ours::kOrderedForOwner == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
static_assert(ours::kFlushCurrentContext == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
static_assert(ours::kFlushToOwner == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
static_assert(ours::kMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(ours::kSyncMemops == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
static_assert(ours::kContextSyncMemops == CU_CTX_SYNC_MEMOPS);
static_assert(ours::kIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(ours::kDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(ours::kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(ours::kHandleIsDmaBuf == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(ours::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);

static_assert(sizeof(ours::MemoryProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(ours::MemoryProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(ours::MemoryProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(ours::MemoryProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(ours::MemoryAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(ours::MemoryAccess, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(ours::kPinnedMemory == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(ours::kLocationIsDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(ours::kHandleIsFd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(ours::kReadAndWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

}  // namespace

int main() {
  return 0;
}
