// Array: the memory of a Python object, used by the collectives without a copy: a NumPy array, an
// object with __dlpack__ (such as a PyTorch tensor), or one with the buffer protocol. Memory of a
// GPU may also come by __cuda_array_interface__.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/python/arguments.h"
#include "collectives/kernels/data_type.h"
#include "runtime/gpu/driver.h"

namespace dunlin::python {

// The kinds of memory that a call can use.
enum class Usable { kHost, kHostAndGpu };

struct Array {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  std::vector<pybind11::ssize_t> shape;
  collective::DataType type{};
  bool is_writable = false;
  // The number of the GPU in whose memory the array is. Empty: host memory.
  std::optional<int> gpu{};
  // Memory of a GPU may be used after the work before this event. Null: now.
  std::shared_ptr<GpuEvent> ready{};
  pybind11::object object;  // the array object
  pybind11::object keeper;  // keeps the memory alive and in its place

  std::size_t bytes() const { return count * collective::size_of(type); }
};

// Throws TypeError for an object that is no array, and InvalidArgumentError for an array that the
// collectives can't use: not contiguous in C order, of another type, or in memory that isn't
// `usable`. `what` names the array in errors. All functions need the GIL.
Array view_of(pybind11::handle object, const char* what, Usable usable = Usable::kHost);
// The same for memory that is written to.
Array writable_view_of(pybind11::handle object, const char* what, Usable usable = Usable::kHost);

// The type of a NumPy array's elements. Throws InvalidArgumentError for one that the collectives
// can't use, such as one of another byte order.
collective::DataType type_of(const pybind11::dtype& dtype, const char* what);

// float32 or float64, as NumPy's dtype() understands `dtype`. Anything else fails `given`.
collective::DataType real_type_of(pybind11::handle dtype, Arguments& given);

// A new NumPy array, not initialized.
Array make_array(collective::DataType type, std::vector<pybind11::ssize_t> shape);

// The memory for a result of this shape and the input's type: `out`, or a new array if that is
// None. It is in the same memory as the input: that of the host, or of the GPU.
Array output_for(const Array& input, std::vector<pybind11::ssize_t> shape, pybind11::handle out);

// Throws InvalidArgumentError unless the array is in the memory of this GPU, or, if that is empty,
// in host memory.
void check_gpu(const Array& array, std::optional<int> gpu, const char* what);

bool overlap(const Array& a, const Array& b);
// Throws InvalidArgumentError if the arrays overlap, unless `inner` begins `offset` elements into
// `outer`, as for an operation in place.
void check_overlap(const Array& outer, const Array& inner, std::size_t offset);
// A contiguous NumPy array over this memory, which `keeper` keeps alive. If `data` is null, it gets
// memory of its own.
pybind11::array array_over(const pybind11::dtype& type, std::vector<pybind11::ssize_t> shape,
                           const void* data, pybind11::handle keeper);

}  // namespace dunlin::python
