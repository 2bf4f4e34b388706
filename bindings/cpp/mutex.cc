#include "collectives/rma/mutex.h"

#include <dunlin/mutex.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

Result<Mutex::Locked> locked(const Result<collective::LockOutcome>& outcome) {
  if (!outcome) return outcome.status();
  return *outcome == collective::LockOutcome::kLocked ? Mutex::Locked::kCleanly
                                                      : Mutex::Locked::kAfterDeath;
}

}  // namespace

struct Mutex::Impl {
  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::DistributedMutex> mutex;
};

Mutex::Mutex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Mutex::Mutex(Mutex&&) noexcept = default;
Mutex& Mutex::operator=(Mutex&&) noexcept = default;
Mutex::~Mutex() = default;

Result<Mutex> Mutex::create(Job& job, const MutexOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::MutexOptions wanted;
  wanted.name = options.name;
  wanted.membership = Internal::membership(job, options.members);
  wanted.owner_rank = options.owner;
  DUNLIN_ASSIGN(impl->mutex,
                collective::DistributedMutex::prepare(*impl->job->fabric, std::move(wanted)));
  DUNLIN_TRY(impl->mutex->connect());
  return Mutex(std::move(impl));
}

Result<Mutex::Locked> Mutex::lock(Duration timeout) {
  return locked(impl_->mutex->lock(timeout));
}

Status Mutex::unlock(Duration timeout) {
  return impl_->mutex->unlock(timeout);
}

bool Mutex::is_held() const {
  return impl_->mutex->is_held();
}

Status Mutex::start() {
  return impl_->mutex->start();
}

Result<Mutex::Locked> Mutex::test() {
  return locked(impl_->mutex->test());
}

Status Mutex::cancel() {
  return impl_->mutex->cancel();
}

Status Mutex::start_unlock() {
  return impl_->mutex->start_unlock();
}

Status Mutex::test_unlock() {
  return impl_->mutex->test_unlock();
}

Status Mutex::progress() {
  return impl_->mutex->progress();
}

}  // namespace dunlin
