// Array: the memory of a Python object, used by the collectives without a copy: a NumPy array, an
// object with __dlpack__ in host memory (such as a PyTorch tensor), or one with the buffer
// protocol.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <vector>

#include "collectives/kernels/data_type.h"

namespace dunlin::python {

struct Array {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  std::vector<pybind11::ssize_t> shape;
  collective::DataType type{};
  bool is_writable = false;
  pybind11::object object;  // the array object
  pybind11::object keeper;  // keeps the memory alive and in its place

  std::size_t bytes() const { return count * collective::size_of(type); }
};

// Throws TypeError for an object that is no array, and InvalidArgumentError for an array that the
// collectives can't use: not contiguous in C order, of another type, or not in host memory. `what`
// names the array in errors. All functions need the GIL.
Array view_of(pybind11::handle object, const char* what);
// The same for memory that is written to.
Array writable_view_of(pybind11::handle object, const char* what);

// A new NumPy array, not initialized.
Array make_array(collective::DataType type, std::vector<pybind11::ssize_t> shape);

// The memory for a result of this shape and the input's type: `out`, or a new array if that is
// None.
Array output_for(const Array& input, std::vector<pybind11::ssize_t> shape, pybind11::handle out);

bool overlap(const Array& a, const Array& b);
// Throws InvalidArgumentError if the arrays overlap, unless `inner` begins `offset` elements into
// `outer`, as for an operation in place.
void check_overlap(const Array& outer, const Array& inner, std::size_t offset);
// A contiguous NumPy array over this memory, which `keeper` keeps alive. If `data` is null, it gets
// memory of its own.
pybind11::array array_over(const pybind11::dtype& type, std::vector<pybind11::ssize_t> shape,
                           const void* data, pybind11::handle keeper);

}  // namespace dunlin::python
