// trace_to_death: finds the death behind an error. When a rank dies, others fail, close their
// connections and leave. A rank that has not yet heard of the death then fails because of them, and
// would name a rank that is not to blame.
#pragma once

#include "transports/fabric.h"

namespace dunlin::collective {

// For an error after which this rank gives up. If a member of the job has died, returns kPeerDead,
// which names it and contains the error's message. Waits a moment for the news of a death if the
// error names a peer that has left or that can't be reached. Returns other errors unchanged. On the
// thread that owns the fabric.
Status trace_to_death(transport::Fabric& fabric, Status error);

}  // namespace dunlin::collective
