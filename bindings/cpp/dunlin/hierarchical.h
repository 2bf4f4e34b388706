// HierarchicalNeighbors: averages of hosts with neighboring hosts, for networks that are slower
// than the communication within a host (BlueFog, hierarchical_neighbor_allreduce).
//
// Let m_i be the mean of the inputs of the ranks of group i. A group is usually a host. On every
// rank of group i,
//   output = self_weight * m_i + the sum over its source groups j of r_ij * s_ij * m_j.
//
// Every rank takes part in the communication between groups: the ranks of a group reduce their
// inputs and scatter the mean, each averages its part with the rank of the same place in the other
// groups, and the parts are gathered again.
//
// All ranks of a group make the same calls in the same order, with the same weights. Calls of
// different groups meet by name, as those of Neighbors. The output is bitwise the same on all ranks
// of a group, and in every run.
//
// The errors are those of Neighbors. After an error that doesn't concern the arguments, every call
// of this rank returns it. Owner thread of the job only. Destroy it when all ranks are done with
// theirs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <dunlin/neighbor.h>

namespace dunlin {

struct HierarchicalOptions {
  std::string name = "hosts";  // distinguishes the objects of one job; the same on all ranks
  // The ranks of each group, in the order of their places. Every rank of the job is in one group,
  // and all groups have the same size. The same on all ranks.
  std::vector<std::vector<Rank>> groups{};
};

class HierarchicalNeighbors {
 public:
  struct Request {
    std::uint64_t number = 0;
  };

  // Collective over the ranks of each group. Data between groups go through `neighbors`, under
  // names of their own.
  static Result<HierarchicalNeighbors> create(Job& job, Neighbors& neighbors,
                                              const HierarchicalOptions& options);

  HierarchicalNeighbors(HierarchicalNeighbors&&) noexcept;
  HierarchicalNeighbors& operator=(HierarchicalNeighbors&&) noexcept;
  ~HierarchicalNeighbors();

  int group() const;  // this rank's
  int groups() const;

  // The call's sources and destinations are groups: Rank(i) is group i. Blocking, for
  // Job::deadline().
  Status average(const NeighborCall& call);
  // Starts the same call and returns. Input and output belong to the call until it is over.
  Result<Request> start_average(const NeighborCall& call);
  // Returns kBusy until the call is over, then the call's outcome once, and kNotFound from then on.
  // Advances all calls.
  Status test(Request request);
  // After a timeout, the call continues.
  Status wait(Request request, Duration timeout);
  void progress();

 private:
  friend struct Internal;
  struct Impl;
  explicit HierarchicalNeighbors(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dunlin
