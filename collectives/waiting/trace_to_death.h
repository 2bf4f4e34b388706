// trace_to_death, name_death: find the death behind an error. When a rank dies, others fail, close
// their connections and leave. A rank that has not yet heard of the death then fails because of
// them, and would name a rank that is not to blame.
#pragma once

#include <vector>

#include "transports/fabric.h"

namespace dunlin::collective {

// Call it with an error after which this rank gives up, on the thread that owns the fabric. If a
// member of the job has died, returns kPeerDead, which names it and contains the error's message.
// Waits a moment for the news of a death if the error names a peer that has left or that can't be
// reached. Returns other errors unchanged.
Status trace_to_death(transport::Fabric& fabric, Status error);

// Call it with the outcome of what `members` have done together, if the survivors of a death go on,
// on the thread that owns the fabric. If the outcome may have followed from a death, waits for up
// to two seconds until one of them is known to be dead, and then returns kPeerDead, which names it.
// Returns other outcomes unchanged.
Status name_death(transport::Fabric& fabric, const std::vector<Rank>& members, Status outcome);

}  // namespace dunlin::collective
