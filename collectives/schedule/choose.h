// Chooses an algorithm by rules, for jobs that have no tuning.
#pragma once

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

// `element`: bytes per element. `is_all_mapped`: every rank has mapped the memory of all others.
const Algorithm* choose_algorithm(const Problem& problem, std::size_t element, bool is_all_mapped);

}  // namespace dunlin::collective
