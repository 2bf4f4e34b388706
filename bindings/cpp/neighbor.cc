#include <dunlin/neighbor.h>

#include <utility>

#include "bindings/cpp/internal.h"
#include "collectives/neighbor/check_neighbors.h"

namespace dunlin {
namespace {

void copy(const std::vector<WeightedRank>& from, std::vector<collective::WeightedRank>& to) {
  to.clear();
  for (const WeightedRank& neighbor : from) to.push_back({neighbor.rank, neighbor.weight});
}

}  // namespace

void NeighborCall::set_neighbors(const Neighborhood& neighborhood) {
  self_weight = neighborhood.self_weight;
  sources.clear();
  destinations.clear();
  for (std::size_t i = 0; i < neighborhood.in.size(); ++i)
    sources.push_back({neighborhood.in[i], neighborhood.in_weights[i]});
  for (const Rank to : neighborhood.out) destinations.push_back({to, 1.0});
}

const collective::NeighborCall& Internal::internal(const NeighborCall& from,
                                                   collective::NeighborCall& to) {
  to.name = from.name;
  to.input = from.input;
  to.output = from.output;
  to.count = from.count;
  to.type = from.type;
  to.self_weight = from.self_weight;
  copy(from.sources, to.sources);
  copy(from.destinations, to.destinations);
  return to;
}

struct Neighbors::Impl {
  const collective::NeighborCall& internal(const NeighborCall& from) {
    return Internal::internal(from, call);
  }

  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::NeighborExchange> exchange;
  collective::NeighborCall call;  // the latest; it keeps its memory
};

Neighbors::Neighbors(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Neighbors::Neighbors(Neighbors&&) noexcept = default;
Neighbors& Neighbors::operator=(Neighbors&&) noexcept = default;
Neighbors::~Neighbors() = default;

Result<Neighbors> Neighbors::create(Job& job, const NeighborOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::NeighborOptions wanted;
  wanted.name = options.name;
  wanted.slot_bytes = options.slot_bytes;
  wanted.depth = options.depth;
  wanted.fusion_threshold = options.fusion_threshold;
  wanted.gpu = options.gpu;
  DUNLIN_ASSIGN(impl->exchange,
                collective::NeighborExchange::create(*impl->job->fabric, std::move(wanted)));
  return Neighbors(std::move(impl));
}

Status Neighbors::average(const NeighborCall& call) {
  return impl_->exchange->run(impl_->internal(call));
}

Status Neighbors::gather(const NeighborCall& call, std::vector<Bytes>& gathered) {
  return impl_->exchange->gather(impl_->internal(call), gathered);
}

Result<Neighbors::Request> Neighbors::start_average(const NeighborCall& call) {
  DUNLIN_ASSIGN(const auto request, impl_->exchange->start(impl_->internal(call)));
  return Request{request.number};
}

Result<Neighbors::Request> Neighbors::start_gather(const NeighborCall& call,
                                                   std::vector<Bytes>& gathered) {
  DUNLIN_ASSIGN(const auto request, impl_->exchange->start_gather(impl_->internal(call), gathered));
  return Request{request.number};
}

Status Neighbors::test(Request request) {
  return impl_->exchange->test({request.number});
}

Status Neighbors::wait(Request request, Duration timeout) {
  return impl_->exchange->wait({request.number}, timeout);
}

void Neighbors::progress() {
  impl_->exchange->progress();
}

Status check_neighbors(Communicator& communicator, const NeighborCall& call) {
  collective::NeighborCall copied;
  return collective::check_neighbors(Internal::communicator(communicator),
                                     Internal::internal(call, copied));
}

collective::NeighborExchange& Internal::exchange(Neighbors& handle) {
  return *handle.impl_->exchange;
}

}  // namespace dunlin
