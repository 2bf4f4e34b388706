// Stochastic reduce for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace dunlin::python {

void define_stochastic(pybind11::module_& module);

}  // namespace dunlin::python
