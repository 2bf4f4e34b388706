// How dunlin-svm continues from checkpoints, with any number of ranks. checkpoint_search.h says
// which checkpoint is taken and which saved states fall to a rank, redistribution.h what becomes of
// them with another number of ranks.
#pragma once

#include <cstdint>

#include "apps/svm/checkpoint.h"
#include "apps/svm/program/options.h"
#include "transports/fabric.h"

namespace dunlin::svm {

// Returns the state from which this rank continues, in the form of a checkpoint of this run.
// Collective over the members, once in an epoch. `fresh` describes the run as it would start anew.
// In ASYNC, each rank continues at its own latest exchange if there are as many ranks as saved it.
// kNotFound without a complete checkpoint, kInvalidArgument if the run has other data or options.
Result<Checkpoint> resume(transport::Fabric& fabric, const Membership& membership,
                          const Options& options, std::uint64_t total_rows,
                          const Checkpoint& fresh);

}  // namespace dunlin::svm
