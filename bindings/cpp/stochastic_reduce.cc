#include "collectives/stochastic/stochastic_reduce.h"

#include <dunlin/stochastic_reduce.h>

#include <utility>

#include "bindings/cpp/internal.h"

namespace dunlin {
namespace {

collective::SyncMode internal(SyncMode mode) {
  switch (mode) {
    case SyncMode::kBsp:
      return collective::SyncMode::kBsp;
    case SyncMode::kAsync:
      return collective::SyncMode::kAsync;
    case SyncMode::kNotifyAck:
      break;
  }
  return collective::SyncMode::kNotifyAck;
}

ReduceReport external(const collective::ReduceReport& report) {
  return {report.step, report.inputs, report.torn, report.stale, report.bytes_sent, report.waited};
}

}  // namespace

template <typename T>
struct StochasticReduce<T>::Impl {
  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::StochasticReduce<T>> reduce;
};

template <typename T>
StochasticReduce<T>::StochasticReduce(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
template <typename T>
StochasticReduce<T>::StochasticReduce(StochasticReduce&&) noexcept = default;
template <typename T>
StochasticReduce<T>& StochasticReduce<T>::operator=(StochasticReduce&&) noexcept = default;
template <typename T>
StochasticReduce<T>::~StochasticReduce() = default;

template <typename T>
Result<StochasticReduce<T>> StochasticReduce<T>::create(Job& job, const ReduceOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  collective::ReduceOptions wanted;
  wanted.name = options.name;
  wanted.membership = Internal::membership(job, options.members);
  wanted.neighborhood = options.neighborhood;
  wanted.count = options.count;
  wanted.mode = internal(options.mode);
  wanted.depth = options.depth;
  wanted.gpu = options.gpu;
  DUNLIN_ASSIGN(impl->reduce,
                collective::StochasticReduce<T>::prepare(*impl->job->fabric, std::move(wanted)));
  DUNLIN_TRY(impl->reduce->connect());
  return StochasticReduce(std::move(impl));
}

template <typename T>
std::span<T> StochasticReduce<T>::model() {
  return impl_->reduce->model();
}

template <typename T>
Result<ReduceReport> StochasticReduce<T>::reduce(Duration timeout) {
  DUNLIN_ASSIGN(const collective::ReduceReport report, impl_->reduce->reduce(timeout));
  return external(report);
}

template <typename T>
Status StochasticReduce<T>::start() {
  return impl_->reduce->start();
}

template <typename T>
Status StochasticReduce<T>::test() {
  return impl_->reduce->test();
}

template <typename T>
ReduceReport StochasticReduce<T>::report() const {
  return external(impl_->reduce->report());
}

template class StochasticReduce<float>;
template class StochasticReduce<double>;

}  // namespace dunlin
