// collectives/graph for Python: the base of dunlin.graph.
#pragma once

#include <pybind11/pybind11.h>

namespace dunlin::python {

void define_graph(pybind11::module_& module);

}  // namespace dunlin::python
