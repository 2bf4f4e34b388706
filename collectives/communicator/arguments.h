// What a member can find wrong with its own call.
#pragma once

#include "collectives/communicator/communicator.h"

namespace dunlin::collective {

// kInvalidArgument and kOutOfRange name what is wrong: a root that is no member, no memory, too
// many elements, or an input and an output that overlap.
Status check_arguments(const Call& call, int rank, int size);
// The last of these alone.
Status check_overlap(const Call& call, int rank, int size);

}  // namespace dunlin::collective
