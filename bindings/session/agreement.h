// Agreement of all ranks: an error or a difference at one rank becomes an error at all of them,
// before anything is built on it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "bindings/session/session.h"
#include "collectives/neighbor/call.h"

namespace dunlin::binding {

// Collective over the members of a communicator. Concatenates `ours` of all of them, which has the
// same size at each. `name`: see Call::name. It is a barrier as well.
Result<std::vector<std::uint8_t>> gather(Session& session, const CommunicatorHandle& communicator,
                                         std::vector<std::uint8_t> ours, std::string_view name,
                                         const Session::Interrupt& interrupt);

// Collective over the session's members. It is ok if `own` is ok at all ranks and all give the same
// text `alike`. Otherwise it returns `own` where that is an error, and kInvalidArgument elsewhere,
// which names a rank that failed or differs and `what` it was doing. It is a barrier as well, and
// waits for Config::deadline at most.
Status agree(Session& session, Status own, std::string_view what, std::string_view alike,
             const Session::Interrupt& interrupt);

// Collective over the session's members. Attaches what `make` prepares, and calls `connect` once
// all members have prepared theirs, so that it doesn't wait. It is ok if both are at all members;
// what is attached is detached otherwise. `what` and `alike`: as for agree().
Status attach_together(Session& session, const Session::MakeResident& make,
                       const std::function<Status()>& connect, std::string_view what,
                       std::string_view alike, const Session::Interrupt& interrupt);

// Collective over all ranks. Does what collective::check_neighbors() does, but other operations
// make progress.
Status check_neighbors(Session& session, const collective::NeighborCall& call,
                       const Session::Interrupt& interrupt);

}  // namespace dunlin::binding
