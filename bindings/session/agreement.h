// Agreement of all ranks: an error or a difference at one rank becomes an error at all of them,
// before anything is built on it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
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

// The same for the members of a communicator. The error names a rank by its number there.
Status agree(Session& session, const CommunicatorHandle& communicator, Status own,
             std::string_view what, std::string_view alike, const Session::Interrupt& interrupt);

// What `step` returns, or the error for an exception. An exception that only one rank throws must
// not keep it from an agreement, where the others wait. `what`: begins the error.
template <typename Step>
Status without_exceptions(std::string_view what, Step&& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return {Code::kResourceExhausted, fmt::format("{}: there is not enough memory", what)};
  } catch (const std::length_error& error) {
    return {Code::kInvalidArgument, fmt::format("{}: {}", what, error.what())};
  }
}

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
