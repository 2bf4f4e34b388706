#include "collectives/neighbor/hierarchical.h"

#include <dunlin/hierarchical.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {

struct HierarchicalNeighbors::Impl {
  const collective::NeighborCall& internal(const NeighborCall& from) {
    return Internal::internal(from, call);
  }

  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::HierarchicalExchange> exchange;
  collective::NeighborCall call;  // the latest; it keeps its memory
};

HierarchicalNeighbors::HierarchicalNeighbors(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HierarchicalNeighbors::HierarchicalNeighbors(HierarchicalNeighbors&&) noexcept = default;
HierarchicalNeighbors& HierarchicalNeighbors::operator=(HierarchicalNeighbors&&) noexcept = default;
HierarchicalNeighbors::~HierarchicalNeighbors() = default;

Result<HierarchicalNeighbors> HierarchicalNeighbors::create(Job& job, Neighbors& neighbors,
                                                            const HierarchicalOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::HierarchicalOptions wanted;
  wanted.name = options.name;
  wanted.machines = options.groups;
  DUNLIN_ASSIGN(impl->exchange,
                collective::HierarchicalExchange::create(
                    *impl->job->fabric, Internal::exchange(neighbors), std::move(wanted)));
  return HierarchicalNeighbors(std::move(impl));
}

int HierarchicalNeighbors::group() const {
  return impl_->exchange->machine();
}

int HierarchicalNeighbors::groups() const {
  return impl_->exchange->machines();
}

Status HierarchicalNeighbors::average(const NeighborCall& call) {
  return impl_->exchange->run(impl_->internal(call));
}

Result<HierarchicalNeighbors::Request> HierarchicalNeighbors::start_average(
    const NeighborCall& call) {
  DUNLIN_ASSIGN(const auto request, impl_->exchange->start(impl_->internal(call)));
  return Request{request.number};
}

Status HierarchicalNeighbors::test(Request request) {
  return impl_->exchange->test({request.number});
}

Status HierarchicalNeighbors::wait(Request request, Duration timeout) {
  return impl_->exchange->wait({request.number}, timeout);
}

void HierarchicalNeighbors::progress() {
  impl_->exchange->progress();
}

}  // namespace dunlin
