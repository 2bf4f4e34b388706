// Averages with neighbours, and what is gathered from them, on Python's arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "collectives/neighbor/call.h"

namespace dunlin::python {

// {rank: weight}, or ranks, whose weights are 1, in their order; None: none.
std::vector<collective::WeightedRank> ranks_of(pybind11::handle neighbors, const char* what);

void define_neighbors(pybind11::module_& module);

}  // namespace dunlin::python
