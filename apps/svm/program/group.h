// Group: the workers that train together. It holds their graph and their exchange, and rebuilds
// both when workers have died, left or joined.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "apps/svm/program/member_graphs.h"
#include "apps/svm/program/options.h"
#include "collectives/graph/graph.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "collectives/waiting/adaptive_timeout.h"
#include "transports/fabric.h"

namespace dunlin::svm {

class Group {
 public:
  // Collective over the members, once in an epoch. `count` is the number of elements of the model.
  // kPeerDead when a member dies meanwhile.
  static Result<std::unique_ptr<Group>> create(transport::Fabric& fabric, const Options& options,
                                               const Membership& membership, std::size_t count);

  // The model memory of this rank. rebuild() replaces it.
  std::span<float> model() { return reduce_->model(); }
  Result<collective::ReduceReport> exchange();
  // Lets members be away for this long between two exchanges without counting as dead. --deadline
  // takes precedence.
  void allow(Duration absence) { absence_ = absence; }
  Duration absence() const { return absence_; }

  // To be called on every member when they have agreed on a new membership; those that have just
  // joined call create() instead. Makes the same kind of graph for them, and carries over this
  // rank's model. The exchange starts anew with step 1.
  Status rebuild(const Membership& membership);
  // Collective, after rebuild() and create(): each newcomer gets the model of a neighbor that is
  // none, or of the first such member. `newcomers` are ascending. Returns when all members are
  // here.
  Status hand_over(const std::vector<Rank>& newcomers, Duration timeout);

  const std::vector<Rank>& members() const { return membership_.members; }
  std::uint64_t epoch() const { return membership_.epoch; }
  bool is_leader() const { return members().front() == fabric_.rank(); }
  const collective::Graph& graph() const { return graph_; }

 private:
  Group(transport::Fabric& fabric, const Options& options, MemberGraphs graphs,
        collective::Graph graph, Membership membership);
  Status build(std::size_t count);
  // The member whose model a newcomer gets.
  Rank source_for(Rank newcomer, const std::vector<Rank>& newcomers) const;
  Duration timeout() const;

  transport::Fabric& fabric_;
  const Options& options_;
  MemberGraphs graphs_;
  collective::Graph graph_;
  Membership membership_;
  collective::AdaptiveTimeout adaptive_;
  Duration absence_{};
  std::unique_ptr<collective::StochasticReduce<float>> reduce_;
};

}  // namespace dunlin::svm
