#include "collectives/partial/partial_all_reduce.h"

#include <dunlin/partial_all_reduce.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {

struct PartialAllReduce::Impl {
  const collective::PartialCall& internal(const PartialCall& from) {
    call.number = from.number;
    call.members.assign(from.members.begin(), from.members.end());
    call.input = from.input;
    call.output = from.output;
    call.count = from.count;
    call.reduction = {from.type, from.op};
    call.label = from.label;
    return call;
  }

  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::PartialAllReduce> partial;
  collective::PartialCall call;  // the latest; it keeps its memory
};

PartialAllReduce::PartialAllReduce(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PartialAllReduce::PartialAllReduce(PartialAllReduce&&) noexcept = default;
PartialAllReduce& PartialAllReduce::operator=(PartialAllReduce&&) noexcept = default;
PartialAllReduce::~PartialAllReduce() = default;

Result<PartialAllReduce> PartialAllReduce::create(Job& job, const PartialOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::PartialOptions wanted;
  wanted.name = options.name;
  wanted.scratch_bytes = options.scratch_bytes;
  wanted.segment_bytes = options.segment_bytes;
  wanted.algorithm = options.algorithm;
  wanted.gpu = options.gpu;
  DUNLIN_ASSIGN(impl->partial,
                collective::PartialAllReduce::create(*impl->job->fabric, std::move(wanted)));
  return PartialAllReduce(std::move(impl));
}

Result<std::span<std::byte>> PartialAllReduce::allocate(std::size_t bytes) {
  return impl_->partial->allocate(bytes);
}

Status PartialAllReduce::free(std::span<std::byte> memory) {
  return impl_->partial->free(memory);
}

Status PartialAllReduce::copy(std::span<std::byte> to, std::span<const std::byte> from) {
  return impl_->partial->copy(to, from);
}

Status PartialAllReduce::run(const PartialCall& call) {
  return impl_->partial->run(impl_->internal(call));
}

Result<PartialAllReduce::Request> PartialAllReduce::start(const PartialCall& call) {
  DUNLIN_ASSIGN(const auto request, impl_->partial->start(impl_->internal(call)));
  return Request{request.number};
}

Status PartialAllReduce::test(Request request) {
  return impl_->partial->test({request.number});
}

Status PartialAllReduce::wait(Request request, Duration timeout) {
  return impl_->partial->wait({request.number}, timeout);
}

void PartialAllReduce::progress() {
  impl_->partial->progress();
}

}  // namespace dunlin
