// HierarchicalExchange: averages of machines with the machines next to them, for networks that are
// slower than what joins the ranks of a machine (BlueFog, hierarchical_neighbor_allreduce).
//
// Call m the mean of the inputs of machine m's ranks. On every rank of machine i,
//   output = self_weight * m_i + sum over its source machines j of r_ij * s_ij * m_j.
//
// Every rank takes part in what crosses the machines' borders: the ranks of a machine reduce their
// inputs and scatter the mean, each averages its part with those of the same place in the other
// machines, and the parts are gathered again. So each rank's network port carries a part of the
// data, and no leader has to pass it on. Small data save a step: each rank has the whole mean.
//
// All ranks of a machine make the same calls in the same order, with the same weights; calls of
// different machines meet by name, as in NeighborExchange. The output is bitwise the same on all
// ranks of a machine, and in every run.
//
// Errors as in neighbor_exchange.h. After one that isn't of the arguments every call of this rank
// returns it, as the ranks of its machine would no longer agree on what they gather.
// Owner thread only. Destroy it when all ranks are done with theirs (a barrier, say), before the
// exchange.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/neighbor/neighbor_exchange.h"

namespace dunlin::collective {

struct HierarchicalOptions {
  std::string name = "machines";  // distinguishes them in one job; the same on all ranks
  // The ranks of each machine, in the order of their places; every rank of the job in one of them,
  // as many in each. The same on all ranks.
  std::vector<std::vector<Rank>> machines;
};

struct HierarchicalRequest {
  std::uint64_t number = 0;
};

class HierarchicalExchange {
 public:
  // Collective over the ranks of each machine. What crosses borders goes through `exchange`, under
  // names of its own.
  static Result<std::unique_ptr<HierarchicalExchange>> create(transport::Fabric& fabric,
                                                              NeighborExchange& exchange,
                                                              HierarchicalOptions options);
  // kInvalidArgument unless each rank of the job has one place, and all machines have as many.
  static Status check(const std::vector<std::vector<Rank>>& machines, int size);
  ~HierarchicalExchange();
  HierarchicalExchange(const HierarchicalExchange&) = delete;
  HierarchicalExchange& operator=(const HierarchicalExchange&) = delete;

  int machine() const { return machine_; }  // ours
  int machines() const { return static_cast<int>(options_.machines.size()); }

  // Begins an average. The call's sources and destinations are machines: Rank(m) is machine m.
  // Input and output are the call's until it has ended.
  Result<HierarchicalRequest> start(const NeighborCall& call);
  // kBusy until the request has ended; its outcome once, kNotFound from then on. Moves all requests
  // on.
  Status test(HierarchicalRequest request);
  // At the deadline the request goes on; errors as Fabric::wait.
  Status wait(HierarchicalRequest request, Duration timeout);
  // start() and wait() for config.deadline.
  Status run(const NeighborCall& call);
  void progress();

  // Whom the request may be waiting for.
  std::vector<transport::Awaited> awaited(HierarchicalRequest request) const;

 private:
  struct Operation;

  HierarchicalExchange(transport::Fabric& fabric, NeighborExchange& exchange,
                       HierarchicalOptions options);
  void take_place();
  Status connect();
  std::unique_ptr<Operation> prepare(const NeighborCall& call);
  Status advance(Operation& operation, bool may_cross, bool may_gather);
  Operation* find(HierarchicalRequest request) const;
  void fail(Status status);

  transport::Fabric& fabric_;
  NeighborExchange& exchange_;
  HierarchicalOptions options_;
  int machine_ = -1;
  int place_ = -1;  // in the machine
  // Means and gathers each start in the order of the calls, but not in an order between them that
  // all ranks of the machine would have.
  std::unique_ptr<Communicator> means_;
  std::unique_ptr<Communicator> gathers_;
  std::deque<std::unique_ptr<Operation>> operations_;  // in the order of their starts
  std::uint64_t next_ = 1;
  Status failure_;
};

}  // namespace dunlin::collective
