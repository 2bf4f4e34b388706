#include "runtime/gpu/cuda_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cctype>

namespace dunlin {

template <typename Function>
bool CudaLibrary::find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(handle_, name));
  return function != nullptr;
}

// Finds all functions. Returns the name of a missing function that Dunlin needs, or null.
const char* CudaLibrary::missing() {
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
  DUNLIN_FIND(cuMemHostRegister_v2);
  DUNLIN_FIND(cuMemHostUnregister);
  DUNLIN_FIND(cuMemGetAddressRange_v2);
  DUNLIN_FIND(cuPointerGetAttribute);
  DUNLIN_FIND(cuPointerSetAttribute);
  DUNLIN_FIND(cuStreamCreate);
  DUNLIN_FIND(cuStreamDestroy_v2);
  DUNLIN_FIND(cuStreamQuery);
  DUNLIN_FIND(cuMemcpyHtoDAsync_v2);
  DUNLIN_FIND(cuMemcpyDtoHAsync_v2);
  DUNLIN_FIND(cuMemcpyAsync);
  DUNLIN_FIND(cuStreamWaitEvent);
  DUNLIN_FIND(cuEventCreate);
  DUNLIN_FIND(cuEventDestroy_v2);
  DUNLIN_FIND(cuEventRecord);
  DUNLIN_FIND(cuEventQuery);
  DUNLIN_FIND(cuModuleLoadData);
  DUNLIN_FIND(cuModuleUnload);
  DUNLIN_FIND(cuModuleGetFunction);
  DUNLIN_FIND(cuLaunchKernel);
  DUNLIN_FIND(cuIpcGetMemHandle);
  DUNLIN_FIND(cuIpcOpenMemHandle_v2);
  DUNLIN_FIND(cuIpcCloseMemHandle);
#undef DUNLIN_FIND
  (void)find(functions_.cuFlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites");
  (void)find(functions_.cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange");
  (void)find(functions_.cuCtxSetFlags, "cuCtxSetFlags");
  (void)find(functions_.cuCtxGetFlags, "cuCtxGetFlags");
  (void)find(functions_.cuDriverGetVersion, "cuDriverGetVersion");
  (void)find(functions_.cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  (void)find(functions_.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  (void)find(functions_.cuStreamIsCapturing, "cuStreamIsCapturing");
  bool has_ranges = true;
#define DUNLIN_FIND(name) has_ranges = find(functions_.name, #name) && has_ranges
  DUNLIN_FIND(cuMemCreate);
  DUNLIN_FIND(cuMemRelease);
  DUNLIN_FIND(cuMemAddressReserve);
  DUNLIN_FIND(cuMemAddressFree);
  DUNLIN_FIND(cuMemMap);
  DUNLIN_FIND(cuMemUnmap);
  DUNLIN_FIND(cuMemSetAccess);
  DUNLIN_FIND(cuMemRetainAllocationHandle);
  DUNLIN_FIND(cuMemGetAllocationPropertiesFromHandle);
  DUNLIN_FIND(cuMemExportToShareableHandle);
  DUNLIN_FIND(cuMemImportFromShareableHandle);
#undef DUNLIN_FIND
  if (!has_ranges) functions_.cuMemRetainAllocationHandle = nullptr;
  return nullptr;
}

Result<CudaLibrary> CudaLibrary::load(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(Code::kUnavailable, fmt::format("no CUDA driver: {}", dlerror()));
  CudaLibrary library(handle);
  if (const char* const function = library.missing(); function != nullptr) {
    return Status(Code::kUnavailable,
                  fmt::format("the CUDA driver {} is too old: it has no {}", name, function));
  }
  return library;
}

Status CudaLibrary::to_status(std::string_view what, cuda::Code code) const {
  if (code == cuda::kSuccess) return Status::ok();
  const char* name = nullptr;
  const char* text = nullptr;
  (void)functions_.cuGetErrorName(code, &name);
  (void)functions_.cuGetErrorString(code, &text);
  const Code kind =
      code == cuda::kOutOfMemory    ? Code::kResourceExhausted
      : code == cuda::kInvalidValue ? Code::kInvalidArgument
      : code == cuda::kNotFound     ? Code::kNotFound
      : code == cuda::kNotSupported || code == cuda::kNoDevice || code == cuda::kNoBinary
          ? Code::kUnavailable
          : Code::kIoError;
  return {kind, fmt::format("{}: {}: {}", what, name == nullptr ? std::to_string(code) : name,
                            text == nullptr ? "unknown error" : text)};
}

std::string CudaLibrary::pci_bus_id(cuda::Device device) const {
  char text[32] = "";
  if (functions_.cuDeviceGetPCIBusId(text, sizeof text, device) != cuda::kSuccess) return "";
  for (char& character : text)
    character = static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
  return text;
}

}  // namespace dunlin
