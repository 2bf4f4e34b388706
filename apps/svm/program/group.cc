#include "apps/svm/program/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/elastic/model_snapshot.h"

namespace dunlin::svm {
namespace {

// An exchange may always take this long before a worker counts as dead. Evaluations, checkpoints
// and the schedulers of crowded hosts can delay a worker by seconds.
constexpr auto kShortestTimeout = std::chrono::seconds(5);

}  // namespace

Group::Group(transport::Fabric& fabric, const Options& options, MemberGraphs graphs,
             collective::Graph graph, Membership membership)
    : fabric_(fabric),
      options_(options),
      graphs_(std::move(graphs)),
      graph_(std::move(graph)),
      membership_(std::move(membership)),
      adaptive_(kShortestTimeout, fabric.config().deadline) {}

Result<std::unique_ptr<Group>> Group::create(transport::Fabric& fabric, const Options& options,
                                             const Membership& membership, std::size_t count) {
  MemberGraphs graphs(options.graph, fabric.bootstrap().job().founders);
  DUNLIN_ASSIGN(collective::Graph graph, graphs.of(membership.members));
  std::unique_ptr<Group> group(
      new Group(fabric, options, std::move(graphs), std::move(graph), membership));
  DUNLIN_TRY(group->build(count));
  return group;
}

Status Group::build(std::size_t count) {
  collective::ReduceOptions reduce;
  reduce.name = "svm";
  reduce.membership = membership_;
  DUNLIN_ASSIGN(
      reduce.neighborhood,
      collective::neighborhood_of(graph_, options_.weighting, membership_.members, fabric_.rank()));
  reduce.count = count;
  reduce.mode = options_.sync;
  reduce.depth = options_.depth;
  DUNLIN_ASSIGN(reduce_, collective::StochasticReduce<float>::prepare(fabric_, std::move(reduce)));
  // Members that connect wait for those that they are connected with, and for no others. If one of
  // these has seen a death and joined the next group, it would be awaited in vain.
  DUNLIN_TRY(fabric_.bootstrap().barrier(fmt::format("svm/prepared/{}", membership_.epoch),
                                         fabric_.config().bootstrap_timeout));
  return reduce_->connect();
}

Duration Group::timeout() const {
  if (!options_.deadline_s) return std::max(adaptive_.current(), absence_);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*options_.deadline_s));
}

Result<collective::ReduceReport> Group::exchange() {
  const TimePoint began = fabric_.clock().now();
  auto report = reduce_->reduce(timeout());
  if (report) adaptive_.record(fabric_.clock().now() - began);
  return report;
}

Status Group::rebuild(const Membership& membership) {
  DUNLIN_ASSIGN(graph_, graphs_.of(membership.members));
  const std::vector<float> model(reduce_->model().begin(), reduce_->model().end());
  const std::vector<Rank> before = membership_.members;
  membership_ = membership;
  reduce_.reset();
  for (const Rank rank : before) {
    if (!std::binary_search(membership_.members.begin(), membership_.members.end(), rank))
      fabric_.drop_link(rank);
  }
  Status status = build(model.size());
  // Also after a failure: another worker may have died, and the next group needs the model.
  if (reduce_) std::copy(model.begin(), model.end(), reduce_->model().begin());
  return status;
}

Rank Group::source_for(Rank newcomer, const std::vector<Rank>& newcomers) const {
  const auto is_newcomer = [&](Rank rank) { return std::ranges::binary_search(newcomers, rank); };
  const auto node = std::ranges::lower_bound(members(), newcomer) - members().begin();
  for (const int neighbor : graph_.in_neighbors(static_cast<int>(node))) {
    const Rank rank = members()[static_cast<std::size_t>(neighbor)];
    if (!is_newcomer(rank)) return rank;
  }
  return *std::ranges::find_if_not(members(), is_newcomer);
}

Status Group::hand_over(const std::vector<Rank>& newcomers, Duration timeout) {
  std::vector<collective::HandOver> plan;
  for (const Rank newcomer : newcomers) plan.push_back({newcomer, source_for(newcomer, newcomers)});
  return collective::hand_over_models(fabric_, fmt::format("svm/{}", epoch()), plan,
                                      std::as_writable_bytes(model()), epoch(), timeout)
      .status();
}

}  // namespace dunlin::svm
