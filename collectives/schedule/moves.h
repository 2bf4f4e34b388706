// The generators of all collectives except all-reduce.
#pragma once

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective::moves {

Program reduce_tree(const Problem& problem, const Shape& shape, int rank);
Program broadcast_tree(const Problem& problem, const Shape& shape, int rank);
Program reduce_scatter_ring(const Problem& problem, const Shape& shape, int rank);
Program reduce_scatter_direct(const Problem& problem, const Shape& shape, int rank);
Program all_gather_ring(const Problem& problem, const Shape& shape, int rank);
Program all_gather_direct(const Problem& problem, const Shape& shape, int rank);
Program all_to_all_pairwise(const Problem& problem, const Shape& shape, int rank);
Program barrier_direct(const Problem& problem, const Shape& shape, int rank);
Program barrier_dissemination(const Problem& problem, const Shape& shape, int rank);

// These access the peers' mapped memory directly.
Program reduce_shared(const Problem& problem, const Shape& shape, int rank);
Program broadcast_shared(const Problem& problem, const Shape& shape, int rank);
Program reduce_scatter_shared(const Problem& problem, const Shape& shape, int rank);
Program all_gather_shared(const Problem& problem, const Shape& shape, int rank);
Program all_to_all_shared(const Problem& problem, const Shape& shape, int rank);

}  // namespace dunlin::collective::moves
