// What all ranks have to do alike, found out by all of them before it goes wrong on some.
#pragma once

#include <string_view>

#include "collectives/bindings/runtime.h"
#include "collectives/neighbor/call.h"

namespace dunlin::binding {

// Collective over all ranks, as all of these: `own` where that is an error, and everywhere else
// kInvalidArgument that names a rank whose own was, and `what` it was doing. The same, everywhere,
// where `alike`, any text, isn't the same. Ok: all were ok; a barrier. Waits
// for the deadline at most.
Status agree(Runtime& runtime, Status own, std::string_view what, std::string_view alike,
             const Runtime::Interrupt& interrupt);

// As collective::check_neighbors(), while everything else goes on.
Status check_neighbors(Runtime& runtime, const collective::NeighborCall& call,
                       const Runtime::Interrupt& interrupt);

}  // namespace dunlin::binding
