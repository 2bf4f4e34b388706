// Partial all-reduces and averages in groups, on Python arrays.
#pragma once

#include <pybind11/pybind11.h>

namespace dunlin::python {

void define_partial(pybind11::module_& module);

}  // namespace dunlin::python
