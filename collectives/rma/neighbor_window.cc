#include "collectives/rma/neighbor_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/log.h"
#include "runtime/overlap.h"

namespace dunlin::collective {

using transport::Awaited;
using transport::kCacheLine;

namespace {

// An index into senders or receivers, or -1.
std::int32_t find_edge(const std::vector<std::int32_t>& edges, Rank rank) {
  return rank.value() < 0 || rank.index() >= edges.size() ? -1 : edges[rank.index()];
}

}  // namespace

// State that lanes may still access after the window is gone.
template <typename T>
struct NeighborWindow<T>::LaneState final : transport::KeptUntilDone {
  // Self and the receivers' own tensors; null: they are on a GPU.
  std::unique_ptr<transport::LocalRegion> memory;
  std::unique_ptr<transport::SlotExchange> exchange;
  std::unique_ptr<transport::LocalRegion> messages;  // on their way out; null: all are mapped
  std::size_t count = 0;
  std::unique_ptr<DepositStaging[]> staging;  // of the messages

  bool is_done() const override {
    return staging == nullptr ||
           std::all_of(staging.get(), staging.get() + count,
                       [](const DepositStaging& one) { return one.is_free(); });
  }
};

template <typename T>
Result<std::unique_ptr<NeighborWindow<T>>> NeighborWindow<T>::prepare(transport::Fabric& fabric,
                                                                      WindowOptions options,
                                                                      std::span<const T> initial) {
  const Neighborhood& around = options.neighborhood;
  if (around.in.size() != around.in_weights.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': {} in-neighbors, {} weights", options.name, around.in.size(),
                              around.in_weights.size()));
  }
  if (!initial.empty() && initial.size() != options.count) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': an initial tensor of {} elements for a window of {}",
                              options.name, initial.size(), options.count));
  }
  // Checked before sizes are computed from it.
  constexpr std::size_t kMost = (UINT32_MAX - EdgeMemory::buffer_bytes(kCacheLine)) / sizeof(T);
  if (options.count > kMost) {
    return Status(Code::kInvalidArgument, fmt::format("'{}': a tensor of {} elements; at most {}",
                                                      options.name, options.count, kMost));
  }
  if (options.gpu && around.in.size() >= gpu::kMostInputs) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': {} in-neighbors; a window on a GPU has at most {}",
                              options.name, around.in.size(), gpu::kMostInputs - 1));
  }
  if (options.depth > 0)
    options.depth = std::max(options.depth, static_cast<std::uint32_t>(EdgeMemory::kBuffers));
  std::unique_ptr<NeighborWindow> window(new NeighborWindow(fabric, std::move(options)));
  DUNLIN_TRY(window->allocate(initial));
  return window;
}

template <typename T>
Status NeighborWindow<T>::allocate(std::span<const T> initial) {
  const Neighborhood& around = options_.neighborhood;
  lane_state_ = std::make_unique<LaneState>();
  DUNLIN_TRY(allocate_tensors());
  if (initial.empty()) {
    passes_.zero(self_);
  } else {
    passes_.take_in(self_, initial.data());
  }
  for (const std::span<T> buffer : buffers_) passes_.copy(buffer, self_.data());
  DUNLIN_TRY(passes_.finish());
  transport::SlotOptions slots{"window/" + options_.name, options_.epoch, around.in, around.out};
  slots.slot_bytes = EdgeMemory::buffer_bytes(options_.count * sizeof(T));
  slots.depth = options_.depth;
  slots.terms = fmt::format("float{} x {}", 8 * sizeof(T), options_.count);
  DUNLIN_ASSIGN(lane_state_->exchange, transport::SlotExchange::prepare(fabric_, std::move(slots)));
  sender_of_.assign(static_cast<std::size_t>(fabric_.size()), -1);
  receiver_of_.assign(static_cast<std::size_t>(fabric_.size()), -1);
  for (std::size_t i = 0; i < around.in.size(); ++i) {
    receiver_of_[around.in[i].index()] = static_cast<std::int32_t>(i);
    default_weights_.push_back({around.in[i], around.in_weights[i]});
    unit_weights_.push_back({around.in[i], 1});
  }
  for (std::size_t i = 0; i < around.out.size(); ++i)
    sender_of_[around.out[i].index()] = static_cast<std::int32_t>(i);
  if (options_.is_readable) {
    if (gpu_) {
      snapshots_ = make_gpu_snapshots(*gpu_, passes_);
    } else {
      DUNLIN_ASSIGN(snapshots_, make_host_snapshots<T>(fabric_, topic("snapshot"), around, self_));
    }
    gets_.reserve(around.in.size());
    DUNLIN_TRY(publish());
  }
  last_update_.resize(around.in.size());
  is_loss_reported_.resize(around.out.size());
  inputs_.reserve(around.in.size());
  weights_.reserve(around.in.size());
  senders_.reserve(around.out.size());
  receivers_.reserve(around.in.size());
  return Status::ok();
}

// Self and the buffers.
template <typename T>
Status NeighborWindow<T>::allocate_tensors() {
  const std::size_t in = options_.neighborhood.in.size();
  const auto tensor_at = [&](std::byte* at) {
    return std::span<T>(reinterpret_cast<T*>(at), options_.count);
  };
  if (options_.gpu) {
    DUNLIN_ASSIGN(passes_, TensorPasses<T>::on_gpu(fabric_, *options_.gpu, options_.count));
    DUNLIN_ASSIGN(gpu_, GpuWindow::prepare(fabric_, passes_.driver(), passes_.device(),
                                           {topic("window-gpu"), options_.neighborhood.in,
                                            options_.neighborhood.out, options_.count * sizeof(T),
                                            options_.is_readable}));
    self_ = tensor_at(gpu_->self());
    for (std::size_t i = 0; i < in; ++i) buffers_.push_back(tensor_at(gpu_->buffer(i)));
    return Status::ok();
  }
  const std::size_t stride = transport::whole_cache_lines(options_.count * sizeof(T));
  // At least a line, because an empty tensor has an address, too.
  DUNLIN_ASSIGN(lane_state_->memory, fabric_.allocate(stride * (1 + in) + kCacheLine));
  self_ = tensor_at(lane_state_->memory->data());
  for (std::size_t i = 1; i <= in; ++i)
    buffers_.push_back(tensor_at(lane_state_->memory->data() + i * stride));
  return Status::ok();
}

// The memory of the edge to this out-neighbor, if it is mapped here.
template <typename T>
std::optional<EdgeMemory> NeighborWindow<T>::mapped_edge(std::size_t out) const {
  auto memory = DepositSender<T>::map(lane_state_->exchange->out()[out], self_.size_bytes());
  if (!gpu_ || !memory) return memory;
  const auto tensors = gpu_->edge_to(out);
  if (!tensors) return std::nullopt;
  memory->tensors = *tensors;
  return memory;
}

template <typename T>
EdgeMemory NeighborWindow<T>::own_edge(std::size_t in) const {
  EdgeMemory memory = EdgeMemory::of(lane_state_->exchange->in()[in].slots, self_.size_bytes());
  if (gpu_) memory.tensors = gpu_->edge_from(in);
  return memory;
}

// Memory for messages along the edges that are not mapped.
template <typename T>
Status NeighborWindow<T>::allocate_messages(std::size_t unmapped) {
  if (unmapped == 0) return Status::ok();
  if (gpu_) host_self_.resize(options_.count);
  const std::size_t message = deposit_bytes(self_.size_bytes());
  const std::size_t stride = transport::whole_cache_lines(message);
  const std::size_t count = unmapped * (options_.depth + 1);
  DUNLIN_ASSIGN(lane_state_->messages, fabric_.allocate(stride * count));
  lane_state_->staging = std::make_unique<DepositStaging[]>(count);
  lane_state_->count = count;
  for (std::size_t i = 0; i < count; ++i) {
    DUNLIN_ASSIGN(lane_state_->staging[i].slice, lane_state_->messages->slice(i * stride, message));
  }
  return Status::ok();
}

template <typename T>
Status NeighborWindow<T>::connect() {
  transport::SlotExchange& exchange = *lane_state_->exchange;
  DUNLIN_TRY(exchange.connect());
  if (gpu_) DUNLIN_TRY(gpu_->connect());
  std::vector<std::optional<EdgeMemory>> mapped;
  for (std::size_t i = 0; i < exchange.out().size(); ++i) mapped.push_back(mapped_edge(i));
  DUNLIN_TRY(allocate_messages(
      static_cast<std::size_t>(std::count(mapped.begin(), mapped.end(), std::nullopt))));
  std::span<DepositStaging> staging(lane_state_->staging.get(), lane_state_->count);
  for (std::size_t i = 0; i < mapped.size(); ++i) {
    const std::size_t ring = mapped[i] ? 0 : options_.depth + 1;
    senders_.emplace_back(exchange, exchange.out()[i], staging.first(ring), mapped[i], passes_);
    staging = staging.subspan(ring);
  }
  for (std::size_t i = 0; i < exchange.in().size(); ++i) {
    receivers_.emplace_back(exchange, exchange.in()[i], own_edge(i), buffers_[i],
                            options_.is_zeroed, passes_);
  }
  if (snapshots_) DUNLIN_TRY(snapshots_->connect());
  // Receivers keep their errors, which the caller's next call returns.
  task_.emplace(fabric_, [this] { (void)progress(); });
  return Status::ok();
}

template <typename T>
NeighborWindow<T>::~NeighborWindow() {
  task_.reset();
  if (!passes_.settle()) {
    // The GPU may still access all of this, so it is never freed.
    DUNLIN_WARN("'{}': the GPU has not ended its work; the memory stays", options_.name);
    (void)new TensorPasses<T>(std::move(passes_));
    (void)new std::vector<T>(std::move(host_self_));
    (void)gpu_.release();
    (void)lane_state_.release();
    return;
  }
  if (lane_state_ && !lane_state_->is_done()) fabric_.keep_until_done(std::move(lane_state_));
}

template <typename T>
Status NeighborWindow<T>::no_neighbor(Rank rank, const char* kind) const {
  return Status(Code::kInvalidArgument,
                fmt::format("'{}': rank {} is no {} of rank {}", options_.name, rank.value(), kind,
                            fabric_.rank().value()))
      .with_peer(rank);
}

template <typename T>
Result<typename NeighborWindow<T>::Buffer> NeighborWindow<T>::buffer(Rank from) {
  const std::int32_t edge = find_edge(receiver_of_, from);
  if (edge < 0) return no_neighbor(from, "in-neighbor");
  const auto view = receivers_[static_cast<std::size_t>(edge)].read();
  DUNLIN_TRY(passes_.finish());
  return Buffer{{view.tensor, options_.count}, view.p, view.version};
}

template <typename T>
Result<typename NeighborWindow<T>::Buffer> NeighborWindow<T>::buffer(Rank from, std::span<T> copy) {
  DUNLIN_TRY(check_room("copy", copy));
  DUNLIN_ASSIGN(const Buffer found, buffer(from));
  passes_.copy(copy, found.tensor.data());
  DUNLIN_TRY(passes_.finish());
  return found;
}

template <typename T>
Result<WindowOperation> NeighborWindow<T>::deposit(DepositKind kind,
                                                   std::span<const WeightedPeer> to,
                                                   double self_weight) {
  check_peers();
  for (const WeightedPeer& one : to) {
    const std::int32_t edge = find_edge(sender_of_, one.peer);
    if (edge < 0) return no_neighbor(one.peer, "out-neighbor");
    const Status& loss = senders_[static_cast<std::size_t>(edge)].loss();
    if (loss.is_error()) return loss;
  }
  const typename DepositSender<T>::Deposit what{kind, ++operations_, self_,
                                                gpu_ ? std::span<const T>(host_self_) : self_, p_};
  bool is_host_self_needed = false;
  const auto sender_to = [&](const WeightedPeer& one) -> DepositSender<T>& {
    return senders_[static_cast<std::size_t>(find_edge(sender_of_, one.peer))];
  };
  for (const WeightedPeer& one : to) {
    sender_to(one).begin(what, one.weight);
    is_host_self_needed = is_host_self_needed || !sender_to(one).is_mapped();
  }
  if (gpu_ && is_host_self_needed) passes_.fetch(host_self_, self_.data());
  DUNLIN_TRY(passes_.finish());
  for (const WeightedPeer& one : to) {
    // An error on one edge doesn't keep the deposit from the others; test() reports it.
    if (sender_to(one).loss().is_ok()) DUNLIN_TRY(sender_to(one).complete(what, one.weight));
  }
  if (self_weight != 1) {
    passes_.average(self_, self_.data(), static_cast<T>(self_weight), {}, {});
    DUNLIN_TRY(passes_.finish());
  }
  p_ *= self_weight;
  DUNLIN_TRY(publish());
  return WindowOperation(what.operation);
}

// Whether a tensor of the caller can be written.
template <typename T>
Status NeighborWindow<T>::check_room(const char* what, std::span<T> room) const {
  if (room.size() != self_.size() ||
      overlap(room.data(), room.size_bytes(), self_.data(), self_.size_bytes())) {
    return {Code::kInvalidArgument,
            fmt::format("'{}': room for {} elements for a {} of {}, outside the tensor",
                        options_.name, room.size(), what, self_.size())};
  }
  return gpu_ && !room.empty() ? passes_.check(what, room) : Status::ok();
}

template <typename T>
Status NeighborWindow<T>::check(const Update& what) {
  if (!what.result.empty()) DUNLIN_TRY(check_room("result", what.result));
  ++updates_;
  for (const WeightedPeer& one : what.from) {
    const std::int32_t edge = find_edge(receiver_of_, one.peer);
    if (edge < 0) return no_neighbor(one.peer, "in-neighbor");
    if (std::exchange(last_update_[static_cast<std::size_t>(edge)], updates_) == updates_) {
      return Status(Code::kInvalidArgument, fmt::format("'{}': rank {} is named twice in an update",
                                                        options_.name, one.peer.value()))
          .with_peer(one.peer);
    }
  }
  return Status::ok();
}

template <typename T>
Result<typename NeighborWindow<T>::Report> NeighborWindow<T>::update(const Update& what) {
  DUNLIN_TRY(check(what));
  DUNLIN_TRY(take_over());
  inputs_.clear();
  weights_.clear();
  Report report;
  report.p = what.self_weight * p_;
  for (const WeightedPeer& one : what.from) {
    auto& receiver = receivers_[static_cast<std::size_t>(find_edge(receiver_of_, one.peer))];
    const auto view = what.reset ? receiver.take() : receiver.look();
    report.deposits += view.version;
    receiver.clear_version();
    if (view.tensor == nullptr) continue;
    report.p += one.weight * view.p;
    inputs_.push_back(view.tensor);
    weights_.push_back(static_cast<T>(one.weight));
  }
  const bool is_to_self = what.result.empty();
  passes_.average(is_to_self ? self_ : what.result, self_.data(), static_cast<T>(what.self_weight),
                  inputs_, weights_);
  DUNLIN_TRY(passes_.finish());
  if (is_to_self) {
    p_ = report.p;
    DUNLIN_TRY(publish());
  }
  return report;
}

template <typename T>
Status NeighborWindow<T>::take_over() {
  Status outcome;
  for (auto& receiver : receivers_) {
    Status status = receiver.progress();
    if (outcome.is_ok()) outcome = std::move(status);
  }
  return outcome;
}

// Deposits for a peer that is gone are lost.
template <typename T>
void NeighborWindow<T>::check_peers() {
  if (fabric_.peers().version() == peers_seen_) return;
  peers_seen_ = fabric_.peers().version();
  for (auto& sender : senders_) {
    if (Status status = fabric_.peers().check(sender.peer()); !status.is_ok())
      sender.lose(std::move(status));
  }
}

template <typename T>
Status NeighborWindow<T>::progress() {
  check_peers();
  for (auto& sender : senders_) (void)sender.progress();  // loss() keeps the error
  return take_over();
}

template <typename T>
Status NeighborWindow<T>::test(WindowOperation operation) {
  DUNLIN_TRY(progress());
  const auto number = static_cast<std::uint64_t>(operation);
  bool is_done = true;
  for (const auto& sender : senders_) {
    if (sender.lost().contains(number)) return sender.loss();
    const auto outstanding = sender.outstanding();
    is_done = is_done && !(outstanding && outstanding->contains(number));
  }
  return is_done ? Status::ok() : Status::busy();
}

template <typename T>
Status NeighborWindow<T>::flush() {
  check_peers();
  const auto is_outstanding = [](const auto& sender) { return sender.is_outstanding(); };
  if (std::any_of(senders_.begin(), senders_.end(), is_outstanding)) DUNLIN_TRY(progress());
  bool is_done = true;
  for (std::size_t i = 0; i < senders_.size(); ++i) {
    const bool has_lost = senders_[i].lost().first <= senders_[i].lost().last;
    if (has_lost && !is_loss_reported_[i]) {
      is_loss_reported_[i] = true;
      return senders_[i].loss();
    }
    is_done = is_done && !senders_[i].is_outstanding();
  }
  return is_done ? Status::ok() : Status::busy();
}

template <typename T>
Status NeighborWindow<T>::wait(WindowOperation operation, Duration timeout) {
  return fabric_.wait([&] { return test(operation); }, [this] { return awaited(); }, timeout);
}

template <typename T>
Status NeighborWindow<T>::flush(Duration timeout) {
  return fabric_.wait([this] { return flush(); }, [this] { return awaited(); }, timeout);
}

template <typename T>
std::vector<Awaited> NeighborWindow<T>::awaited() const {
  std::vector<Awaited> waits;
  for (const auto& sender : senders_) {
    const auto outstanding = sender.outstanding();
    if (!outstanding) continue;
    waits.push_back(
        {sender.peer(), fmt::format("taking over deposits {} to {} to window '{}'",
                                    outstanding->first, outstanding->last, options_.name)});
  }
  return waits;
}

template <typename T>
std::string NeighborWindow<T>::topic(const char* what) const {
  return fmt::format("{}/{}/{}", what, options_.name, options_.epoch);
}

template <typename T>
std::shared_ptr<MemoryRegion> NeighborWindow<T>::owner_of_self() const {
  return gpu_ ? gpu_->owner() : lane_state_->memory->memory();
}

template <typename T>
Status NeighborWindow<T>::start_get(std::span<const WeightedPeer> from) {
  if (!gets_.empty()) return Status::busy();
  if (!options_.is_readable) {
    return {Code::kInvalidArgument,
            fmt::format("'{}': the window was not made readable", options_.name)};
  }
  for (const WeightedPeer& one : from) {
    const std::int32_t edge = find_edge(receiver_of_, one.peer);
    if (edge < 0) return no_neighbor(one.peer, "in-neighbor");
    DUNLIN_TRY(fabric_.peers().check(one.peer));
    DUNLIN_TRY(snapshots_->check(static_cast<std::size_t>(edge)));
  }
  gets_.assign(from.begin(), from.end());
  next_get_ = 0;
  get_next();
  return Status::ok();
}

// Begins to read the next one, if there is one.
template <typename T>
void NeighborWindow<T>::get_next() {
  if (next_get_ == gets_.size()) return;
  const Rank owner = gets_[next_get_].peer;
  snapshots_->start(static_cast<std::size_t>(find_edge(receiver_of_, owner)));
}

template <typename T>
Status NeighborWindow<T>::test_get() {
  Status status = progress();
  while (status.is_ok() && next_get_ < gets_.size()) {
    const WeightedPeer one = gets_[next_get_];
    status = fabric_.peers().check(one.peer);
    if (status.is_ok()) status = snapshots_->progress();
    if (!status.is_ok()) break;
    receivers_[static_cast<std::size_t>(find_edge(receiver_of_, one.peer))].replace(
        snapshots_->tensor(), snapshots_->p(), one.weight);
    status = passes_.finish();
    ++next_get_;
    get_next();
  }
  if (!status.is_busy()) gets_.clear();
  return status;
}

template <typename T>
Status NeighborWindow<T>::get(std::span<const WeightedPeer> from, Duration timeout) {
  bool is_started = false;
  Status status = fabric_.wait(
      [&]() -> Status {
        if (!is_started) DUNLIN_TRY(start_get(from));
        is_started = true;
        return test_get();
      },
      [&] {
        std::vector<Awaited> waits;
        if (is_started && next_get_ < gets_.size())
          waits.push_back({gets_[next_get_].peer,
                           fmt::format("reading what it published in window '{}'", options_.name)});
        return waits;
      },
      timeout);
  if (is_started) cancel_get();
  return status;
}

template class NeighborWindow<float>;
template class NeighborWindow<double>;

}  // namespace dunlin::collective
