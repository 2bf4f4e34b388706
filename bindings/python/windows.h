// Windows and mutexes for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace dunlin::python {

void define_windows(pybind11::module_& module);
void define_mutexes(pybind11::module_& module);

}  // namespace dunlin::python
