#include "collectives/rma/neighbor_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/kernels/average.h"

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
  std::unique_ptr<transport::LocalRegion> memory;  // self and the receivers' own tensors
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
  if (options.depth > 0)
    options.depth = std::max(options.depth, static_cast<std::uint32_t>(EdgeMemory::kBuffers));
  std::unique_ptr<NeighborWindow> window(new NeighborWindow(fabric, std::move(options)));
  DUNLIN_TRY(window->allocate(initial));
  return window;
}

template <typename T>
Status NeighborWindow<T>::allocate(std::span<const T> initial) {
  const Neighborhood& around = options_.neighborhood;
  const std::size_t tensor_bytes = options_.count * sizeof(T);
  const std::size_t stride = transport::whole_cache_lines(tensor_bytes);
  // At least a line, because an empty tensor has an address, too.
  lane_state_ = std::make_unique<LaneState>();
  DUNLIN_ASSIGN(lane_state_->memory,
                fabric_.allocate(stride * (1 + around.in.size()) + kCacheLine));
  std::byte* at = lane_state_->memory->data();
  const auto next_tensor = [&] {
    const std::span<T> tensor{reinterpret_cast<T*>(at), options_.count};
    at += stride;
    return tensor;
  };
  self_ = next_tensor();
  std::fill(self_.begin(), self_.end(), T{0});
  std::copy(initial.begin(), initial.end(), self_.begin());
  for (std::size_t i = 0; i < around.in.size(); ++i) {
    buffers_.push_back(next_tensor());
    std::copy(self_.begin(), self_.end(), buffers_.back().begin());
  }
  DUNLIN_ASSIGN(lane_state_->exchange,
                transport::SlotExchange::prepare(
                    fabric_, {"window/" + options_.name, options_.epoch, around.in, around.out,
                              EdgeMemory::buffer_bytes(tensor_bytes), options_.depth}));
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
    DUNLIN_ASSIGN(published_, SnapshotWriter::create(fabric_, self_.size_bytes()));
    DUNLIN_ASSIGN(reader_, SnapshotReader::create(fabric_, self_.size_bytes()));
    gets_.reserve(around.in.size());
    publish();
    DUNLIN_TRY(fabric_.bootstrap().publish(snapshot_key(fabric_.rank()), published_->descriptor()));
  }
  last_update_.resize(around.in.size());
  is_loss_reported_.resize(around.out.size());
  inputs_.reserve(around.in.size());
  weights_.reserve(around.in.size());
  senders_.reserve(around.out.size());
  receivers_.reserve(around.in.size());
  return Status::ok();
}

// Memory for messages along the edges that are not mapped.
template <typename T>
Status NeighborWindow<T>::allocate_messages() {
  const auto& edges = lane_state_->exchange->out();
  const auto unmapped =
      static_cast<std::size_t>(std::count_if(edges.begin(), edges.end(), [](const auto& edge) {
        return !DepositSender<T>::is_mapped(edge);
      }));
  if (unmapped == 0) return Status::ok();
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
  DUNLIN_TRY(lane_state_->exchange->connect());
  DUNLIN_TRY(allocate_messages());
  std::span<DepositStaging> staging(lane_state_->staging.get(), lane_state_->count);
  for (transport::OutSlots& edge : lane_state_->exchange->out()) {
    const std::size_t ring = DepositSender<T>::is_mapped(edge) ? 0 : options_.depth + 1;
    senders_.emplace_back(*lane_state_->exchange, edge, staging.first(ring), self_.size_bytes());
    staging = staging.subspan(ring);
  }
  for (std::size_t i = 0; i < lane_state_->exchange->in().size(); ++i) {
    receivers_.emplace_back(*lane_state_->exchange, lane_state_->exchange->in()[i], buffers_[i],
                            options_.is_zeroed);
  }
  if (options_.is_readable) DUNLIN_TRY(import_snapshots());
  // Receivers keep their errors, which the caller's next call returns.
  task_.emplace(fabric_, [this] { (void)progress(); });
  return Status::ok();
}

template <typename T>
NeighborWindow<T>::~NeighborWindow() {
  task_.reset();
  if (reader_ && !reader_->is_done()) fabric_.keep_until_done(std::move(reader_));
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
  return Buffer{{view.tensor, options_.count}, view.p, view.version};
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
  const std::uint64_t operation = ++operations_;
  for (const WeightedPeer& one : to) {
    auto& sender = senders_[static_cast<std::size_t>(find_edge(sender_of_, one.peer))];
    // An error on one edge doesn't keep the deposit from the others; test() reports it.
    if (sender.loss().is_ok()) sender.deposit(kind, operation, one.weight, self_, p_);
  }
  scale(self_, self_weight);
  p_ *= self_weight;
  publish();
  return WindowOperation(operation);
}

template <typename T>
Result<typename NeighborWindow<T>::Report> NeighborWindow<T>::update() {
  return update({options_.neighborhood.self_weight, default_weights_});
}

template <typename T>
Result<typename NeighborWindow<T>::Report> NeighborWindow<T>::update_then_collect() {
  return update({1, unit_weights_, true});
}

template <typename T>
Status NeighborWindow<T>::check(const Update& what) {
  if (!what.result.empty() && what.result.size() != self_.size()) {
    return {Code::kInvalidArgument, fmt::format("'{}': room for {} elements for a result of {}",
                                                options_.name, what.result.size(), self_.size())};
  }
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
  std::span<T> result = self_;
  if (!what.result.empty()) {
    result = what.result;
    std::copy(self_.begin(), self_.end(), result.begin());
  } else {
    p_ = report.p;
  }
  weighted_average(result, static_cast<T>(what.self_weight), std::span<const T* const>(inputs_),
                   std::span<const T>(weights_));
  if (what.result.empty()) publish();
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
std::string NeighborWindow<T>::snapshot_key(Rank rank) const {
  return fmt::format("snapshot/{}/{}/{}", options_.name, options_.epoch, rank.value());
}

template <typename T>
Status NeighborWindow<T>::import_snapshots() {
  for (const Rank from : options_.neighborhood.in) {
    auto descriptor =
        fabric_.bootstrap().lookup_from(from, snapshot_key(from), fabric_.config().deadline);
    if (!descriptor) {
      return std::move(descriptor)
          .status()
          .with_context("waiting for a neighbor's snapshot")
          .with_peer(from);
    }
    DUNLIN_TRY(reader_->add(fabric_, from, *descriptor));
  }
  return Status::ok();
}

template <typename T>
std::shared_ptr<MemoryRegion> NeighborWindow<T>::owner_of_self() const {
  return lane_state_->memory->memory();
}

template <typename T>
void NeighborWindow<T>::publish() {
  if (published_) published_->publish(std::as_bytes(self_), p_);
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
    DUNLIN_TRY(reader_->check(static_cast<std::size_t>(edge)));
  }
  gets_.assign(from.begin(), from.end());
  next_get_ = 0;
  return get_next();
}

// Begins to read the next one, if there is one.
template <typename T>
Status NeighborWindow<T>::get_next() {
  if (next_get_ == gets_.size()) return Status::ok();
  const Rank owner = gets_[next_get_].peer;
  reader_->start(static_cast<std::size_t>(find_edge(receiver_of_, owner)));
  return Status::ok();
}

template <typename T>
Status NeighborWindow<T>::test_get() {
  Status status = progress();
  while (status.is_ok() && next_get_ < gets_.size()) {
    const WeightedPeer one = gets_[next_get_];
    status = fabric_.peers().check(one.peer);
    if (status.is_ok()) status = reader_->progress();
    if (!status.is_ok()) break;
    const std::span<const std::byte> bytes = reader_->tensor();
    const std::span<const T> tensor{reinterpret_cast<const T*>(bytes.data()), self_.size()};
    receivers_[static_cast<std::size_t>(find_edge(receiver_of_, one.peer))].replace(
        tensor, reader_->p(), one.weight);
    ++next_get_;
    status = get_next();
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
