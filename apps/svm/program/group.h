// Group: the workers that train together: their graph, their exchange, and how they go on without
// those who die.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "apps/svm/program/options.h"
#include "collectives/adaptive_timeout.h"
#include "collectives/graph/graph.h"
#include "collectives/stochastic_reduce.h"
#include "transports/fabric.h"

namespace dunlin::svm {

class Group {
 public:
  // `count`: elements of the model. Collective over all ranks.
  static Result<std::unique_ptr<Group>> create(transport::Fabric& fabric, const Options& options,
                                               std::size_t count);

  // The model memory of this rank; another one after rebuild().
  std::span<float> model() { return reduce_->model(); }
  Result<collective::ReduceReport> exchange();
  // Members may be away for so long between two exchanges without counting as lost (unless
  // --deadline says when they do).
  void allow(Duration absence);

  // After a loss, on every survivor: agrees on who is left, raises the epoch, makes the same kind
  // of graph for them, and carries this rank's model over. The exchange starts anew with step 1.
  Status rebuild();

  const std::vector<Rank>& members() const { return membership_.members; }
  std::uint64_t epoch() const { return membership_.epoch; }
  bool is_leader() const { return members().front() == fabric_.rank(); }
  const collective::Graph& graph() const { return graph_; }

 private:
  Group(transport::Fabric& fabric, const Options& options, collective::Graph graph,
        Membership membership);
  Status build(std::size_t count);
  Duration timeout() const;

  transport::Fabric& fabric_;
  const Options& options_;
  collective::Graph graph_;
  Membership membership_;
  collective::AdaptiveTimeout adaptive_;
  Duration absence_{};
  std::unique_ptr<collective::StochasticReduce<float>> reduce_;
};

}  // namespace dunlin::svm
