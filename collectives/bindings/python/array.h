// Array: somebody's memory as the collectives see it, without a copy: a NumPy array, anything with
// __dlpack__ in host memory (a PyTorch tensor), or anything with the buffer protocol.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <vector>

#include "collectives/data_type.h"

namespace dunlin::python {

struct Array {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  std::vector<pybind11::ssize_t> shape;
  collective::DataType type{};
  bool is_writable = false;
  pybind11::object object;  // whose memory it is
  pybind11::object keeper;  // what keeps the memory where it is

  std::size_t bytes() const { return count * collective::size_of(type); }
};

// Throws TypeError for what is no array, InvalidArgumentError for one that the collectives can't
// take: not contiguous in C's order, of another type, not in host memory. `what` names it. With the
// GIL, as all of these.
Array view_of(pybind11::handle object, const char* what);
// The same, for memory that is written to.
Array writable_view_of(pybind11::handle object, const char* what);

// A new NumPy array, not initialised.
Array make_array(collective::DataType type, std::vector<pybind11::ssize_t> shape);

// The memory for a result of this shape, of the input's type: `out`, or new where that is None.
Array output_for(const Array& input, std::vector<pybind11::ssize_t> shape, pybind11::handle out);

bool overlap(const Array& a, const Array& b);
// In place means: `inner` lies `offset` elements into `outer`. Throws InvalidArgumentError for any
// other overlap.
void check_overlap(const Array& outer, const Array& inner, std::size_t offset);
// An array of NumPy's, contiguous, over this memory, which `keeper` keeps; memory of its own where
// `data` is null.
pybind11::array array_over(const pybind11::dtype& type, std::vector<pybind11::ssize_t> shape,
                           const void* data, pybind11::handle keeper);

}  // namespace dunlin::python
