// The generators of the all-reduce algorithms. algorithm.cc lists their names and purposes.
#pragma once

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective::all_reduce {

Program direct(const Problem& problem, const Shape& shape, int rank);
Program shared(const Problem& problem, const Shape& shape, int rank);
Program recursive_doubling(const Problem& problem, const Shape& shape, int rank);
Program halving_doubling(const Problem& problem, const Shape& shape, int rank);
Program tree(const Problem& problem, const Shape& shape, int rank);
Program ring(const Problem& problem, const Shape& shape, int rank);
Program hierarchical(const Problem& problem, const Shape& shape, int rank);
Program torus(const Problem& problem, const Shape& shape, int rank);
Program mesh(const Problem& problem, const Shape& shape, int rank);
Program two_d_tga(const Problem& problem, const Shape& shape, int rank);

}  // namespace dunlin::collective::all_reduce
