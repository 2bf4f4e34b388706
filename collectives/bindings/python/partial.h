// All-reduces among ranks of one's choice, and averages in groups, on Python's arrays.
#pragma once

#include <pybind11/pybind11.h>

namespace dunlin::python {

void define_partial(pybind11::module_& module);

}  // namespace dunlin::python
