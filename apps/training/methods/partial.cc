#include "apps/training/methods/partial.h"

namespace dunlin::training {

// Averages of groups that a generator forms while workers train (collectives/partial) have no
// interface for a worker yet; the method stands on it.
Result<std::unique_ptr<Method>> prepare_partial(transport::Fabric&, const MethodOptions&) {
  return Status(Code::kUnavailable,
                "the method 'partial' is not in this build: it waits for averages of the groups "
                "that collectives/partial forms");
}

}  // namespace dunlin::training
