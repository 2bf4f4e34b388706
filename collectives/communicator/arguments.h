// What a member can find wrong with its own call.
#pragma once

#include "collectives/communicator/communicator.h"

namespace dunlin::collective {

// kInvalidArgument and kOutOfRange name what is wrong: a root that is no member, no memory, too
// many elements, or an output that overlaps the input but is not at its place for use in place.
Status check_arguments(const Call& call, int rank, int size);

}  // namespace dunlin::collective
