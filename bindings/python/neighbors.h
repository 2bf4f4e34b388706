// Averages with neighbors and gathers from them, on Python arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "collectives/neighbor/call.h"

namespace dunlin::python {

// Reads {rank: weight}, or ranks, whose weights are 1, in their order. None: no ranks.
std::vector<collective::WeightedRank> ranks_of(pybind11::handle neighbors, const char* what);

void define_neighbors(pybind11::module_& module);

}  // namespace dunlin::python
