// connect_ranks(): how the ranks of a group find one another.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bindings/nccl/connecting.h"
#include "bindings/nccl/shared_endpoint.h"

namespace dunlin::nccl {

// Connects this rank with each other rank, whose listeners have the handles, by rank. Returns the
// connections by rank; that of this rank itself is null. Blocks, until DUNLIN_BOOTSTRAP_TIMEOUT at
// most: then kDeadlineExceeded names the ranks that are missing. Takes the endpoint's lock.
Result<std::vector<std::unique_ptr<transport::Connection>>> connect_ranks(
    SharedEndpoint& endpoint, std::span<const Handle> handles, int rank);

}  // namespace dunlin::nccl
