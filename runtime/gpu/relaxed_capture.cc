#include "runtime/gpu/relaxed_capture.h"

#include <dlfcn.h>

#include <atomic>

#include "runtime/gpu/cuda_driver.h"
#include "runtime/gpu/cuda_interface.h"

namespace dunlin {
namespace {

using Exchange = int (*)(int* mode);

Exchange find_exchange() {
  static std::atomic<Exchange> found{nullptr};
  if (found != nullptr) return found;
  void* const library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr)
    found = reinterpret_cast<Exchange>(dlsym(library, "cuThreadExchangeStreamCaptureMode"));
  return found;
}

}  // namespace

RelaxedCapture::RelaxedCapture() : RelaxedCapture(find_exchange()) {}

RelaxedCapture::RelaxedCapture(Exchange exchange)
    : exchange_(exchange),
      mode_(cuda::kCaptureModeRelaxed),
      has_changed_(exchange_ != nullptr && exchange_(&mode_) == cuda::kSuccess) {}

RelaxedCapture::~RelaxedCapture() {
  if (has_changed_) (void)exchange_(&mode_);
}

}  // namespace dunlin
