// Which algorithm suits a collective, as long as nothing was measured.
#pragma once

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {

// `element`: bytes; `is_all_mapped`: every rank's memory is mapped by every other's process.
const Algorithm* choose_algorithm(const Problem& problem, std::size_t element, bool is_all_mapped);

}  // namespace dunlin::collective
