// CudaLibrary: the functions of CUDA's driver library, found at run time. Internal to this folder.
#pragma once

#include <string>
#include <string_view>

#include "runtime/gpu/cuda_interface.h"
#include "runtime/gpu/relaxed_capture.h"
#include "runtime/status.h"

namespace dunlin {

inline cuda::Address address_of(const void* data) {
  return reinterpret_cast<cuda::Address>(data);
}

// Any thread.
class CudaLibrary {
 public:
  // The library stays loaded. kUnavailable names what is missing.
  static Result<CudaLibrary> load(const std::string& name);

  const cuda::Functions& operator*() const { return functions_; }
  const cuda::Functions* operator->() const { return &functions_; }

  // "cuMemAlloc of 5 bytes: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
  Status to_status(std::string_view what, cuda::Code code) const;
  // Returns what GpuDevice::pci_bus_id documents.
  std::string pci_bus_id(cuda::Device device) const;

 private:
  explicit CudaLibrary(void* handle) : handle_(handle) {}
  template <typename Function>
  bool find(Function*& function, const char* name);
  const char* missing();

  void* handle_;
  cuda::Functions functions_{};
};

// Makes the primary context of a device current for the calling thread until this is destroyed. The
// CUDA runtime and its users share that context.
class CurrentContext {
 public:
  CurrentContext(const CudaLibrary& library, cuda::Context context)
      : relaxed_(library->cuThreadExchangeStreamCaptureMode),
        library_(library),
        status_(library.to_status("cuCtxPushCurrent", library->cuCtxPushCurrent_v2(context))) {}
  ~CurrentContext() {
    cuda::Context popped = nullptr;
    if (status_.is_ok()) (void)library_->cuCtxPopCurrent_v2(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  const Status& status() const { return status_; }

 private:
  const RelaxedCapture relaxed_;
  const CudaLibrary& library_;
  Status status_;
};

}  // namespace dunlin
