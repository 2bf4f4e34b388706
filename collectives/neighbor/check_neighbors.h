// Whether the neighbours that ranks name match, found out by all of them before anything is sent
// (BlueFog, section VI-C).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/neighbor/call.h"

namespace dunlin::collective {

// Collective over all ranks of the communicator, which are all ranks of the job: kInvalidArgument
// on all of them, with the first pairs that disagree, unless each rank is a source of exactly those
// that are its destinations. Costs an all-gather of a byte per pair of ranks; afterwards everything
// goes on as before.
Status check_neighbors(Communicator& communicator, const NeighborCall& call);

// What it is made of, for those who gather by other means.
namespace neighbor {

// What rank `self` of `size` says of the others: a byte for each rank.
std::vector<std::uint8_t> claims_of(const NeighborCall& call, Rank self, int size);
// `all`: the claims of all ranks, one behind the other.
Status compare_claims(std::span<const std::uint8_t> all, int size);

}  // namespace neighbor

}  // namespace dunlin::collective
