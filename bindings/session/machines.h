// Machines: averages of groups of ranks (such as the ranks of a host) with neighboring groups, by
// HierarchicalExchange (collectives/neighbor/hierarchical.h).
#pragma once

#include <memory>
#include <vector>

#include "bindings/session/session.h"
#include "collectives/neighbor/hierarchical.h"

namespace dunlin::binding {

// Threads: any. All ranks of a group make the calls in the same order. The session has to outlive
// it.
class Machines {
 public:
  // Collective over all ranks of the job. `machines`: the ranks of each group, as in
  // HierarchicalOptions; the same on all ranks.
  static Result<std::shared_ptr<Machines>> create(Session& session,
                                                  std::vector<std::vector<Rank>> machines,
                                                  const Session::Interrupt& interrupt);

  // See HierarchicalExchange::start(). Input and output belong to the operation until it is over.
  Result<std::shared_ptr<SessionOperation>> start(const collective::NeighborCall& call);

 private:
  class Averages;
  class Average;
  Machines(Session& session, std::shared_ptr<Averages> averages)
      : session_(session), averages_(std::move(averages)) {}

  Session& session_;
  std::shared_ptr<Averages> averages_;
};

}  // namespace dunlin::binding
