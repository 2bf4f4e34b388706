// GpuArray: an array in the memory of a GPU that this package has allocated, for results and for
// empty(). Other packages read it without copying, by __cuda_array_interface__ and by DLPack.
//
// Methods need the GIL. The memory lives as long as the array, or as something that another package
// has made of its DLPack capsule.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/python/array.h"
#include "runtime/memory/region.h"

namespace dunlin::python {

class GpuArray {
 public:
  // `data` is memory of `owner`, which is null for an array without elements.
  GpuArray(collective::DataType type, std::vector<pybind11::ssize_t> shape, int device,
           std::shared_ptr<MemoryRegion> owner, std::byte* data);

  const Array& view() const { return view_; }  // without object and keeper
  int device() const { return *view_.gpu; }
  std::string dtype() const { return to_string(view_.type); }
  pybind11::tuple shape() const;
  pybind11::dict interface() const;
  // The consumer's stream has nothing to wait for, as the package's own work on the array is
  // complete. BufferError for a copy, or for another device than the array's (`target`).
  pybind11::capsule dlpack(const pybind11::object& target, const pybind11::object& copy) const;
  std::string text() const;

 private:
  Array view_;
  std::shared_ptr<MemoryRegion> owner_;
};

// A new array, not initialized. `what` is for errors.
Array make_gpu_array(collective::DataType type, std::vector<pybind11::ssize_t> shape, int device,
                     const char* what);

void define_gpu_array(pybind11::module_& module);

}  // namespace dunlin::python
