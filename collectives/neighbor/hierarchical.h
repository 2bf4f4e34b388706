// HierarchicalExchange: averages of machines with neighboring machines, for networks that are
// slower than the connection of the ranks on one machine (BlueFog,
// hierarchical_neighbor_allreduce). A machine is a group of ranks, usually those of one host.
//
// Let m_i be the mean of the inputs of machine i's ranks. On every rank of machine i,
//   output = self_weight * m_i + sum over its source machines j of r_ij * s_ij * m_j.
//
// Every rank takes part in the exchange between machines. The ranks of a machine reduce their
// inputs and scatter the mean, each rank averages its part with the ranks of the same place in the
// other machines, and the parts are gathered again. So each rank's network port carries a part of
// the data, and no leader has to forward it. Small data save a step: each rank holds the whole
// mean.
//
// All ranks of a machine make the same calls in the same order, with the same names and weights. If
// their names differ, all get kInvalidArgument. Calls of different machines meet by name, as in
// NeighborExchange. The output is bitwise the same on all ranks of a machine, and in every run.
//
// Errors are those of neighbor_exchange.h. After an error other than one of arguments, every call
// of this rank returns it, as the ranks of its machine would no longer agree on what they gather.
// Owner thread only. Destroy it when all ranks are done with theirs (after a barrier, say), before
// the exchange.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/neighbor/neighbor_exchange.h"

namespace dunlin::collective {

struct HierarchicalOptions {
  std::string name = "machines";  // tells those of a job apart; the same on all ranks
  // The ranks of each machine, in the order of their places. Every rank of the job is in one
  // machine, and all machines have the same number of ranks. The same on all ranks.
  std::vector<std::vector<Rank>> machines;
};

struct HierarchicalRequest {
  std::uint64_t number = 0;
};

class HierarchicalExchange {
 public:
  // Collective over the ranks of each machine. Data between machines travel through `exchange`,
  // under names of their own.
  static Result<std::unique_ptr<HierarchicalExchange>> create(transport::Fabric& fabric,
                                                              NeighborExchange& exchange,
                                                              HierarchicalOptions options);
  // kInvalidArgument unless each rank of the job has one place, and all machines have the same
  // number of ranks.
  static Status check(const std::vector<std::vector<Rank>>& machines, int size);
  ~HierarchicalExchange();
  HierarchicalExchange(const HierarchicalExchange&) = delete;
  HierarchicalExchange& operator=(const HierarchicalExchange&) = delete;

  int machine() const { return machine_; }  // this rank's
  int machines() const { return static_cast<int>(options_.machines.size()); }

  // Begins an average. The call's sources and destinations are machines: Rank(m) is machine m.
  // Input and output belong to the call until it has ended. It moves on only in calls of this
  // object. While this rank waits for something else, the others wait for it.
  Result<HierarchicalRequest> start(const NeighborCall& call);
  // kBusy until the request has ended, then its outcome once, then kNotFound. Moves all requests
  // on.
  Status test(HierarchicalRequest request);
  // test() until it isn't busy. The request goes on after the deadline. Returns the errors of
  // Fabric::wait().
  Status wait(HierarchicalRequest request, Duration timeout);
  // start(), and wait() for at most config.deadline.
  Status run(const NeighborCall& call);
  void progress();

  // The peers that the request may be waiting for.
  std::vector<transport::Awaited> awaited(HierarchicalRequest request) const;
  // The first of them, without an allocation.
  Rank blocker(HierarchicalRequest request) const;

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
  // Two communicators: means start in the order of the calls, and so do gathers, but the order of
  // means and gathers together may differ among the ranks of a machine.
  std::unique_ptr<Communicator> means_;
  std::unique_ptr<Communicator> gathers_;
  std::deque<std::unique_ptr<Operation>> operations_;  // in the order of their starts
  std::uint64_t next_ = 1;
  Status failure_;
};

}  // namespace dunlin::collective
