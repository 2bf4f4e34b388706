// Machines: averages of groups of ranks with the groups next to them, as HierarchicalExchange
// (hierarchical.h), for the languages that the runtime serves.
#pragma once

#include <memory>
#include <vector>

#include "collectives/bindings/runtime.h"
#include "collectives/neighbor/hierarchical.h"

namespace dunlin::binding {

// Any thread, in the same order on all ranks of a group. The runtime outlives its use.
class Machines {
 public:
  // Collective over all ranks of the job: the ranks of each machine, as HierarchicalOptions.
  static Result<std::shared_ptr<Machines>> create(Runtime& runtime,
                                                  std::vector<std::vector<Rank>> machines,
                                                  const Runtime::Interrupt& interrupt);

  // As HierarchicalExchange::start(). Input and output are the operation's until it is over.
  Result<std::shared_ptr<Operation>> start(const collective::NeighborCall& call);

 private:
  class Averages;
  class Average;
  Machines(Runtime& runtime, std::shared_ptr<Averages> averages)
      : runtime_(runtime), averages_(std::move(averages)) {}

  Runtime& runtime_;
  std::shared_ptr<Averages> averages_;
};

}  // namespace dunlin::binding
