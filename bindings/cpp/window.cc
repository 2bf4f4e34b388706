#include <dunlin/window.h>

#include <utility>

#include "bindings/cpp/internal.h"
#include "collectives/rma/neighbor_window.h"

namespace dunlin {

template <typename T>
struct Window<T>::Impl {
  std::span<const collective::WeightedPeer> internal(std::span<const WeightedRank> ranks) {
    peers.clear();
    for (const WeightedRank& neighbor : ranks) peers.push_back({neighbor.rank, neighbor.weight});
    return peers;
  }

  std::shared_ptr<JobState> job;
  std::unique_ptr<collective::NeighborWindow<T>> window;
  std::vector<collective::WeightedPeer> peers;  // of the latest call; it keeps its memory
};

namespace {

template <typename T, typename InternalReport>
Result<typename Window<T>::Report> external(const Result<InternalReport>& report) {
  if (!report) return report.status();
  return typename Window<T>::Report{report->p, report->deposits};
}

}  // namespace

template <typename T>
Window<T>::Window(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
template <typename T>
Window<T>::Window(Window&&) noexcept = default;
template <typename T>
Window<T>& Window<T>::operator=(Window&&) noexcept = default;
template <typename T>
Window<T>::~Window() = default;

template <typename T>
Result<Window<T>> Window<T>::create(Job& job, const WindowOptions& options,
                                    std::span<const T> initial) {
  auto impl = std::make_unique<Impl>();
  impl->job = Internal::state(job);
  impl->peers.reserve(options.neighborhood.in.size() + options.neighborhood.out.size());
  collective::WindowOptions wanted;
  wanted.name = options.name;
  wanted.epoch = options.epoch;
  wanted.neighborhood = options.neighborhood;
  wanted.count = options.count;
  wanted.is_zeroed = options.is_zeroed;
  wanted.depth = options.depth;
  wanted.is_readable = options.is_readable;
  wanted.gpu = options.gpu;
  DUNLIN_ASSIGN(impl->window, collective::NeighborWindow<T>::prepare(*impl->job->fabric,
                                                                     std::move(wanted), initial));
  DUNLIN_TRY(impl->window->connect());
  return Window(std::move(impl));
}

template <typename T>
std::span<T> Window<T>::tensor() {
  return impl_->window->self();
}

template <typename T>
double Window<T>::p() const {
  return impl_->window->p();
}

template <typename T>
void Window<T>::set_p(double p) {
  impl_->window->set_p(p);
}

template <typename T>
Result<typename Window<T>::Buffer> Window<T>::buffer(Rank from) {
  DUNLIN_ASSIGN(const auto buffer, impl_->window->buffer(from));
  return Buffer{buffer.tensor, buffer.p, buffer.version};
}

template <typename T>
Status Window<T>::put(std::span<const WeightedRank> to, double self_weight) {
  return impl_->window->put(impl_->internal(to), self_weight).status();
}

template <typename T>
Status Window<T>::accumulate(std::span<const WeightedRank> to, double self_weight) {
  return impl_->window->accumulate(impl_->internal(to), self_weight).status();
}

template <typename T>
Result<typename Window<T>::Report> Window<T>::update() {
  return external<T>(impl_->window->update());
}

template <typename T>
Result<typename Window<T>::Report> Window<T>::update(const Update& what) {
  return external<T>(impl_->window->update(
      {what.self_weight, impl_->internal(what.from), what.reset, what.result}));
}

template <typename T>
Result<typename Window<T>::Report> Window<T>::collect() {
  return external<T>(impl_->window->update_then_collect());
}

template <typename T>
Status Window<T>::flush(Duration timeout) {
  return impl_->window->flush(timeout);
}

template <typename T>
Status Window<T>::publish() {
  return impl_->window->publish();
}

template <typename T>
Status Window<T>::get(std::span<const WeightedRank> from, Duration timeout) {
  return impl_->window->get(impl_->internal(from), timeout);
}

template <typename T>
Status Window<T>::progress() {
  return impl_->window->progress();
}

template class Window<float>;
template class Window<double>;

}  // namespace dunlin
