#include "collectives/straggler/straggler_ring.h"

#include <dunlin/straggler_ring.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

collective::LatenessOptions internal(const Lateness& lateness) {
  collective::LatenessOptions made;
  made.mode = lateness.mode == Lateness::Mode::kNever   ? collective::LatenessMode::kNever
              : lateness.mode == Lateness::Mode::kFixed ? collective::LatenessMode::kFixed
                                                        : collective::LatenessMode::kAdaptive;
  made.alpha = lateness.alpha;
  made.step = lateness.step;
  made.transfer = lateness.transfer;
  return made;
}

}  // namespace

template <typename T>
struct StragglerRing<T>::Impl {
  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::StragglerRing<T>> ring;
};

template <typename T>
StragglerRing<T>::StragglerRing(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
template <typename T>
StragglerRing<T>::StragglerRing(StragglerRing&&) noexcept = default;
template <typename T>
StragglerRing<T>& StragglerRing<T>::operator=(StragglerRing&&) noexcept = default;
template <typename T>
StragglerRing<T>::~StragglerRing() = default;

template <typename T>
Result<StragglerRing<T>> StragglerRing<T>::create(Job& job, const StragglerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::StragglerOptions wanted;
  wanted.name = options.name;
  wanted.membership = Internal::membership(job, options.members);
  wanted.count = options.count;
  wanted.is_average = options.is_average;
  wanted.lateness = internal(options.lateness);
  DUNLIN_ASSIGN(impl->ring,
                collective::StragglerRing<T>::prepare(*impl->job->fabric, std::move(wanted)));
  DUNLIN_TRY(impl->ring->connect());
  return StragglerRing(std::move(impl));
}

template <typename T>
std::span<T> StragglerRing<T>::data() {
  return impl_->ring->data();
}

template <typename T>
Result<StragglerReport> StragglerRing<T>::all_reduce(Duration timeout) {
  DUNLIN_ASSIGN(const auto report, impl_->ring->all_reduce(timeout));
  return StragglerReport{report.step,     report.timeouts,   report.skips,     report.skipped,
                         report.forwards, report.bytes_sent, report.scattered, report.took};
}

template class StragglerRing<float>;
template class StragglerRing<double>;

}  // namespace dunlin
