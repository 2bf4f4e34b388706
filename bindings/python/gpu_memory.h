// The memory of GPUs, as other packages pass it: by __cuda_array_interface__ (version 2 or 3) or by
// DLPack. https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
//
// All functions need the GIL. They throw UnavailableError if CUDA's driver is missing or too old.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bindings/python/array.h"
#include "runtime/gpu/driver.h"

namespace dunlin::python {

// What the package itself uses of the driver. Never destroyed, as arrays may outlive the
// interpreter's modules.
class GpuAccess {
 public:
  static GpuAccess& instance();
  const std::shared_ptr<GpuDriver>& driver(const char* what);
  // A stream of the device. Another package makes it wait for the work that it has started on an
  // array. It is idle, unless kMostStreams are busy: arrays then wait for one another's work, too.
  NativeGpuStream stream_for(int device, const char* what);

 private:
  // Streams per device. Calls run in their order, so that few of them gain from a stream of their
  // own.
  static constexpr std::size_t kMostStreams = 16;

  std::shared_ptr<GpuDriver> driver_;
  // By device. The stream that was used last is at the end.
  std::map<int, std::vector<std::unique_ptr<GpuStream>>> streams_;
};

// Whether the object has __cuda_array_interface__.
bool has_gpu_interface(pybind11::handle object);
// Reads __cuda_array_interface__. Throws InvalidArgumentError for a mask, for strides, and for
// memory that is not the memory of one GPU. The array is ready after the work that the interface's
// stream has now. Version 2 names no stream: there, it is the legacy default stream.
Array view_of_gpu_interface(pybind11::handle object, const char* what);
// Throws InvalidArgumentError unless all bytes are memory of one GPU, which is `device` if that is
// at least 0, and not managed memory. Sets view.gpu.
void find_gpu(Array& view, int device, const char* what);
// Makes the view ready after the work that the stream has now. The device is known.
void set_ready_after(Array& view, NativeGpuStream stream, const char* what);
// Waits until the array's memory may be used, without the GIL, and runs signal handlers meanwhile.
void await_ready(const Array& array, const char* what);
// Says that a call needs host memory.
[[noreturn]] void refuse_gpu(const char* what);

}  // namespace dunlin::python
