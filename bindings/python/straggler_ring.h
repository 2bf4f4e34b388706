// The straggler-aware ring for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace dunlin::python {

void define_straggler_ring(pybind11::module_& module);

}  // namespace dunlin::python
