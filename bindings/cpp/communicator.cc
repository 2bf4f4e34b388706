#include "collectives/communicator/communicator.h"

#include <dunlin/communicator.h>

#include <utility>

#include "bindings/cpp/internal.h"
#include "collectives/schedule/algorithm.h"

namespace dunlin {

struct Communicator::Impl {
  // `name` has to outlive the call's start.
  collective::Call call(Kind kind, const void* in, void* out, std::size_t count, DataType type,
                        ReduceOp op, int root, const std::string& name) const {
    collective::Call made{
        static_cast<collective::Collective>(kind), in, out, count, {type, op}, root};
    if (kind == Kind::kAllReduce) made.algorithm = all_reduce;
    made.name = name;
    return made;
  }

  static_assert(
      static_cast<int>(Kind::kAllReduce) == static_cast<int>(collective::Collective::kAllReduce) &&
      static_cast<int>(Kind::kAllToAll) == static_cast<int>(collective::Collective::kAllToAll) &&
      static_cast<int>(Kind::kBarrier) == static_cast<int>(collective::Collective::kBarrier));

  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::Communicator> communicator;
  std::string all_reduce;  // the algorithm that was asked for; empty: none
  std::string next_name;   // of the next operation
};

namespace {

collective::CollectiveRequest internal(const Communicator::Request& request) {
  return {request.first, request.end};
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Result<Communicator> Communicator::create(Job& job, const CommunicatorOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::CommunicatorOptions wanted;
  wanted.name = options.name;
  wanted.members = options.members;
  wanted.scratch_bytes = options.scratch_bytes;
  wanted.segment_bytes = options.segment_bytes;
  wanted.groups = options.groups;
  wanted.gpu = options.gpu;
  DUNLIN_ASSIGN(impl->communicator,
                collective::Communicator::create(*impl->job->fabric, std::move(wanted)));
  return Communicator(std::move(impl));
}

Result<Communicator> Communicator::split(int color, int key) {
  auto impl = std::make_unique<Impl>();
  impl->job = impl_->job;
  DUNLIN_ASSIGN(impl->communicator, impl_->communicator->split(color, key));
  return Communicator(std::move(impl));
}

int Communicator::rank() const {
  return impl_->communicator->rank();
}

int Communicator::size() const {
  return impl_->communicator->size();
}

Result<std::span<std::byte>> Communicator::allocate(std::size_t bytes) {
  return impl_->communicator->allocate(bytes);
}

Status Communicator::free(std::span<std::byte> memory) {
  return impl_->communicator->free(memory);
}

void Communicator::name_next(std::string name) {
  impl_->next_name = std::move(name);
}

Status Communicator::run(Kind kind, const void* in, void* out, std::size_t count, DataType type,
                         ReduceOp op, int root) {
  const std::string name = std::exchange(impl_->next_name, {});
  return impl_->communicator->run(impl_->call(kind, in, out, count, type, op, root, name));
}

Result<Communicator::Request> Communicator::start(Kind kind, const void* in, void* out,
                                                  std::size_t count, DataType type, ReduceOp op,
                                                  int root) {
  std::string name = std::exchange(impl_->next_name, {});
  const auto request =
      impl_->communicator->start(impl_->call(kind, in, out, count, type, op, root, name));
  if (request.status().is_busy()) impl_->next_name = std::move(name);
  if (!request) return request.status();
  return Request{request->first, request->end};
}

Status Communicator::test(const Request& request) {
  return impl_->communicator->test(internal(request));
}

Status Communicator::wait(const Request& request, Duration timeout) {
  return impl_->communicator->wait(internal(request), timeout);
}

Status Communicator::wait(const Request& request) {
  return wait(request, impl_->job->config.deadline);
}

void Communicator::progress() {
  impl_->communicator->progress();
}

Status Communicator::use_all_reduce(std::string_view algorithm) {
  if (!algorithm.empty()) {
    const auto found = collective::find_algorithm(collective::Collective::kAllReduce, algorithm);
    DUNLIN_TRY(found.status());
  }
  impl_->all_reduce = algorithm;
  return Status::ok();
}

collective::Communicator& Internal::communicator(Communicator& handle) {
  return *handle.impl_->communicator;
}

}  // namespace dunlin
