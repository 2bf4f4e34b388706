#include "apps/svm/program/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"
#include "collectives/graph/rebuild.h"
#include "runtime/log.h"

namespace dunlin::svm {
namespace {

// An exchange may always take this long before a worker counts as dead. Evaluations, checkpoints
// and the schedulers of crowded hosts can delay a worker by seconds.
constexpr auto kShortestTimeout = std::chrono::seconds(5);

}  // namespace

Group::Group(transport::Fabric& fabric, const Options& options, collective::Graph graph,
             Membership membership)
    : fabric_(fabric),
      options_(options),
      graph_(std::move(graph)),
      membership_(std::move(membership)),
      adaptive_(kShortestTimeout, fabric.config().deadline) {}

Result<std::unique_ptr<Group>> Group::create(transport::Fabric& fabric, const Options& options,
                                             const Membership& membership, std::size_t count) {
  DUNLIN_ASSIGN(collective::Graph graph, collective::make_graph(options.graph, fabric.size()));
  if (!collective::is_strongly_connected(graph)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("graph '{}' over {} workers is not strongly connected: some workers "
                              "would never receive the models of others",
                              options.graph, fabric.size()));
  }
  if (static_cast<int>(membership.members.size()) < fabric.size()) {
    std::vector<int> nodes;
    for (const Rank member : membership.members) nodes.push_back(member.value());
    DUNLIN_ASSIGN(graph, collective::rebuild_graph(graph, nodes));
  }
  std::unique_ptr<Group> group(new Group(fabric, options, std::move(graph), membership));
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

void Group::allow(Duration absence) {
  absence_ = absence;
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

Status Group::rebuild(const Membership& survivors) {
  std::vector<int> nodes;
  for (const Rank rank : survivors.members) {
    const auto place = std::find(membership_.members.begin(), membership_.members.end(), rank);
    nodes.push_back(static_cast<int>(place - membership_.members.begin()));
  }
  DUNLIN_ASSIGN(graph_, collective::rebuild_graph(graph_, nodes));
  const std::vector<float> model(reduce_->model().begin(), reduce_->model().end());
  const std::vector<Rank> before = membership_.members;
  membership_ = survivors;
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

}  // namespace dunlin::svm
