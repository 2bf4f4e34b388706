// AD-PSGD and parameter servers for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace dunlin::python {

void define_training(pybind11::module_& module);

}  // namespace dunlin::python
