// check_neighbors(): all ranks find out, before anything is sent, whether the sources and
// destinations that they name match (BlueFog, section VI-C).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/neighbor/call.h"

namespace dunlin::collective {

// Collective over the communicator, whose members are all ranks of the job. Returns
// kInvalidArgument on all of them, with the first pairs that disagree, unless i names j as a source
// exactly when j names i as a destination. Takes an all-gather of one byte per pair of ranks. The
// communicator can be used after an error, too.
Status check_neighbors(Communicator& communicator, const NeighborCall& call);

// The two parts of it, for callers that gather by other means.
namespace neighbor {

// What rank `self` of `size` says about the others: a byte for each rank.
std::vector<std::uint8_t> claims_of(const NeighborCall& call, Rank self, int size);
// `all` has the claims of all ranks, in their order.
Status compare_claims(std::span<const std::uint8_t> all, int size);

}  // namespace neighbor

}  // namespace dunlin::collective
