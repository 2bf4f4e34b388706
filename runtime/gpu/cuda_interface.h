// The part of CUDA's driver API that Dunlin uses: types, constants and functions by their exported
// names. With it, Dunlin builds without the CUDA toolkit. CUDA keeps this binary interface stable.
// A test in tests/runtime compares it with cuda.h when the toolkit is installed.
#pragma once

#include <cstddef>

namespace dunlin::cuda {

using Code = int;                    // CUresult
using Device = int;                  // CUdevice
using Address = unsigned long long;  // CUdeviceptr
using Context = struct CUctx_st*;    // CUcontext
using Stream = struct CUstream_st*;  // CUstream
using Event = struct CUevent_st*;    // CUevent
using Module = struct CUmod_st*;     // CUmodule
using Function = struct CUfunc_st*;  // CUfunction
struct IpcHandle {                   // CUipcMemHandle
  char data[64];
};
using MemoryHandle = unsigned long long;  // CUmemGenericAllocationHandle
struct MemoryLocation {                   // CUmemLocation
  int type = 0;
  int id = 0;
};
struct MemoryProperties {  // CUmemAllocationProp
  int type = 0;
  int handle_types = 0;
  MemoryLocation location;
  void* win32_meta_data = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {  // CUmemAccessDesc
  MemoryLocation location;
  int flags = 0;
};

inline constexpr Code kSuccess = 0;
inline constexpr Code kInvalidValue = 1;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kNoDevice = 100;
inline constexpr Code kInvalidContext = 201;
inline constexpr Code kMapFailed = 205;
inline constexpr Code kAlreadyMapped = 208;
inline constexpr Code kNoBinary = 209;  // CUDA_ERROR_NO_BINARY_FOR_GPU
inline constexpr Code kInvalidHandle = 400;
inline constexpr Code kNotFound = 500;
inline constexpr Code kNotReady = 600;
inline constexpr Code kAlreadyPinned = 712;  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
inline constexpr Code kNotPinned = 713;
inline constexpr Code kNotSupported = 801;
inline constexpr Code kCaptureUnsupported = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
inline constexpr Code kCaptureImplicit = 906;     // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT

// CUdevice_attribute
inline constexpr int kProcessors = 16;
inline constexpr int kComputeMajor = 75;
inline constexpr int kComputeMinor = 76;
inline constexpr int kGpuDirectSupported = 116;
inline constexpr int kFlushOptions = 117;
inline constexpr int kWritesOrdering = 118;
inline constexpr int kDmaBufSupported = 124;

inline constexpr int kFlushByHost = 1;        // a bit of kFlushOptions
inline constexpr int kOrderedForOwner = 100;  // value of kWritesOrdering, or more
inline constexpr int kFlushCurrentContext = 0;
inline constexpr int kFlushToOwner = 100;

// CUpointer_attribute
inline constexpr int kMemoryType = 2;
inline constexpr int kSyncMemops = 6;
inline constexpr int kBufferId = 7;
inline constexpr int kIsManaged = 8;
inline constexpr int kDeviceOrdinal = 9;
inline constexpr unsigned kMemoryTypeDevice = 2;

inline constexpr int kPinnedMemory = 1;      // CU_MEM_ALLOCATION_TYPE_PINNED
inline constexpr int kLocationIsDevice = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kHandleIsFd = 1;        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr int kReadAndWrite = 3;      // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
inline constexpr int kHandleIsDmaBuf = 1;
inline constexpr unsigned kPinnedForAllContexts = 1;  // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kContextSyncMemops = 0x80;  // CU_CTX_SYNC_MEMOPS
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureModeRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr int kIsNotCapturing = 0;      // CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kIpcLazyPeerAccess = 1;

// A pointer is null when the library lacks the function. Only the optional functions may be
// missing.
struct Functions {
  Code (*cuInit)(unsigned flags);
  Code (*cuGetErrorName)(Code code, const char** name);
  Code (*cuGetErrorString)(Code code, const char** text);
  Code (*cuDeviceGetCount)(int* count);
  Code (*cuDeviceGet)(Device* device, int number);
  Code (*cuDeviceGetName)(char* name, int size, Device device);
  Code (*cuDeviceTotalMem_v2)(std::size_t* bytes, Device device);
  Code (*cuDeviceGetAttribute)(int* value, int attribute, Device device);
  Code (*cuDeviceGetPCIBusId)(char* id, int size, Device device);
  Code (*cuDevicePrimaryCtxRetain)(Context* context, Device device);
  Code (*cuCtxGetDevice)(Device* device);
  Code (*cuCtxPushCurrent_v2)(Context context);
  Code (*cuCtxPopCurrent_v2)(Context* context);
  Code (*cuMemAlloc_v2)(Address* address, std::size_t size);
  Code (*cuMemFree_v2)(Address address);
  Code (*cuMemHostRegister_v2)(void* data, std::size_t size, unsigned flags);
  Code (*cuMemHostUnregister)(void* data);
  Code (*cuMemGetAddressRange_v2)(Address* base, std::size_t* size, Address address);
  Code (*cuPointerGetAttribute)(void* value, int attribute, Address address);
  Code (*cuPointerSetAttribute)(const void* value, int attribute, Address address);
  Code (*cuStreamCreate)(Stream* stream, unsigned flags);
  Code (*cuStreamDestroy_v2)(Stream stream);
  Code (*cuStreamQuery)(Stream stream);
  Code (*cuMemcpyHtoDAsync_v2)(Address to, const void* from, std::size_t size, Stream stream);
  Code (*cuMemcpyDtoHAsync_v2)(void* to, Address from, std::size_t size, Stream stream);
  Code (*cuMemcpyAsync)(Address to, Address from, std::size_t size, Stream stream);
  Code (*cuStreamWaitEvent)(Stream stream, Event event, unsigned flags);
  Code (*cuEventCreate)(Event* event, unsigned flags);
  Code (*cuEventDestroy_v2)(Event event);
  Code (*cuEventRecord)(Event event, Stream stream);
  Code (*cuEventQuery)(Event event);
  Code (*cuModuleLoadData)(Module* module, const void* image);
  Code (*cuModuleUnload)(Module module);
  Code (*cuModuleGetFunction)(Function* function, Module module, const char* name);
  Code (*cuLaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                         Stream stream, void** parameters, void** extra);
  Code (*cuIpcGetMemHandle)(IpcHandle* handle, Address address);
  Code (*cuIpcOpenMemHandle_v2)(Address* address, IpcHandle handle, unsigned flags);
  Code (*cuIpcCloseMemHandle)(Address address);
  // Optional: the first is there since CUDA 11.3, the second since 11.7, the third since 12.1. The
  // others only describe.
  Code (*cuFlushGPUDirectRDMAWrites)(int target, int scope);
  Code (*cuMemGetHandleForAddressRange)(void* handle, Address address, std::size_t size, int type,
                                        unsigned long long flags);
  Code (*cuCtxSetFlags)(unsigned flags);
  Code (*cuCtxGetFlags)(unsigned* flags);
  Code (*cuDriverGetVersion)(int* version);
  Code (*cuDeviceCanAccessPeer)(int* can, Device device, Device peer);
  // Optional, there since CUDA 10.1 and 10.0. The first sets the calling thread's mode, and returns
  // the former one.
  Code (*cuThreadExchangeStreamCaptureMode)(int* mode);
  Code (*cuStreamIsCapturing)(Stream stream, int* status);
  // Optional, all or none: virtual memory management, there since CUDA 11.0.
  Code (*cuMemCreate)(MemoryHandle* handle, std::size_t size, const MemoryProperties* properties,
                      unsigned long long flags);
  Code (*cuMemRelease)(MemoryHandle handle);
  Code (*cuMemAddressReserve)(Address* address, std::size_t size, std::size_t alignment,
                              Address wanted, unsigned long long flags);
  Code (*cuMemAddressFree)(Address address, std::size_t size);
  Code (*cuMemMap)(Address address, std::size_t size, std::size_t offset, MemoryHandle handle,
                   unsigned long long flags);
  Code (*cuMemUnmap)(Address address, std::size_t size);
  Code (*cuMemSetAccess)(Address address, std::size_t size, const MemoryAccess* access,
                         std::size_t count);
  Code (*cuMemRetainAllocationHandle)(MemoryHandle* handle, void* address);
  Code (*cuMemGetAllocationPropertiesFromHandle)(MemoryProperties* properties, MemoryHandle handle);
  Code (*cuMemExportToShareableHandle)(void* shareable, MemoryHandle handle, int type,
                                       unsigned long long flags);
  Code (*cuMemImportFromShareableHandle)(MemoryHandle* handle, void* shareable, int type);
};

}  // namespace dunlin::cuda
