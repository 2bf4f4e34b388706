// Whether the neighbours that ranks name match, found out by all of them before anything is sent
// (BlueFog, section VI-C).
#pragma once

#include "collectives/communicator.h"
#include "collectives/neighbor/call.h"

namespace dunlin::collective {

// Collective over all ranks of the communicator, which are all ranks of the job: kInvalidArgument
// on all of them, with the first pairs that disagree, unless each rank is a source of exactly those
// that are its destinations. Costs an all-gather of a byte per pair of ranks; afterwards everything
// goes on as before.
Status check_neighbors(Communicator& communicator, const NeighborCall& call);

}  // namespace dunlin::collective
