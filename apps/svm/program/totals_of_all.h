// The sum of all workers' totals at the end of a run.
#pragma once

#include "apps/svm/program/totals.h"
#include "runtime/bootstrap/bootstrap.h"
#include "transports/fabric.h"

namespace dunlin::svm {

// Collective over the members: the sum of their totals. It also keeps every rank here until all
// ranks are done, since neighbors may still write into its memory. It waits for slow workers as
// long as they live: in ASYNC they may be far behind. A death ends it on all members or on none, so
// that all survivors agree on a new group.
Result<Totals> collect_totals(transport::Fabric& fabric, const Membership& membership,
                              const Totals& own);

}  // namespace dunlin::svm
