#include "collectives/barrier/barrier.h"

#include <dunlin/barrier.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {

struct Barrier::Impl {
  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::Barrier> barrier;
};

Barrier::Barrier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Barrier::Barrier(Barrier&&) noexcept = default;
Barrier& Barrier::operator=(Barrier&&) noexcept = default;
Barrier::~Barrier() = default;

Result<Barrier> Barrier::create(Job& job, std::string name, std::vector<Rank> members) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  if (members.empty()) members = job.members().ranks;
  DUNLIN_ASSIGN(impl->barrier, collective::Barrier::prepare(*impl->job->fabric, std::move(name),
                                                            std::move(members)));
  DUNLIN_TRY(impl->barrier->connect());
  return Barrier(std::move(impl));
}

Status Barrier::wait(Duration timeout) {
  return impl_->barrier->wait(timeout);
}

Status Barrier::start() {
  return impl_->barrier->start();
}

Status Barrier::test() {
  return impl_->barrier->test();
}

}  // namespace dunlin
