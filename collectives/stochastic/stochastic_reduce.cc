#include "collectives/stochastic/stochastic_reduce.h"

#include <fmt/format.h>

#include <numeric>

#include "collectives/kernels/average.h"
#include "collectives/kernels/element_limit.h"
#include "runtime/gpu/cuda_driver.h"

namespace dunlin::collective {

using transport::Awaited;
using transport::kCacheLine;
using transport::kVersionBytes;
using transport::Message;
using transport::versioned_slot_bytes;
using transport::VersionedReader;
using transport::VersionedWriter;

namespace {

template <typename T>
constexpr DataType kDataType = sizeof(T) == 4 ? DataType::kFloat32 : DataType::kFloat64;

}  // namespace

const char* to_string(SyncMode mode) {
  switch (mode) {
    case SyncMode::kNotifyAck:
      return "notify-ack";
    case SyncMode::kBsp:
      return "bsp";
    case SyncMode::kAsync:
      return "async";
  }
  return "unknown";
}

Result<SyncMode> parse_sync_mode(std::string_view name) {
  for (const SyncMode mode : {SyncMode::kNotifyAck, SyncMode::kBsp, SyncMode::kAsync}) {
    if (name == to_string(mode)) return mode;
  }
  return Status(
      Code::kInvalidArgument,
      fmt::format("no mode of synchronization is called '{}'; there are: notify-ack, bsp, async",
                  name));
}

// State that lanes may still access after the reduce is gone.
template <typename T>
struct StochasticReduce<T>::LaneState final : transport::KeptUntilDone {
  std::unique_ptr<transport::LocalRegion> memory;  // version, model, digest
  std::unique_ptr<transport::SlotExchange> exchange;
  std::size_t edges = 0;
  std::unique_ptr<transport::Completion[]> completions;  // one per out-neighbor
  std::vector<bool> is_posted;

  bool is_done() const override {
    for (std::size_t edge = 0; edge < edges; ++edge) {
      if (is_posted[edge] && !completions[edge].is_done()) return false;
    }
    return true;
  }
};

template <typename T>
Result<std::unique_ptr<StochasticReduce<T>>> StochasticReduce<T>::prepare(transport::Fabric& fabric,
                                                                          ReduceOptions options) {
  if (options.neighborhood.in.size() != options.neighborhood.in_weights.size()) {
    return Status(Code::kInvalidArgument, fmt::format("'{}': {} in-neighbors, {} weights",
                                                      options.name, options.neighborhood.in.size(),
                                                      options.neighborhood.in_weights.size()));
  }
  if (options.count > kMostElements) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': a model of {} elements, at most {} are possible", options.name,
                              options.count, kMostElements));
  }
  std::unique_ptr<StochasticReduce> reduce(new StochasticReduce(fabric, std::move(options)));
  DUNLIN_TRY(reduce->allocate());
  return reduce;
}

template <typename T>
Status StochasticReduce<T>::allocate_model() {
  const std::size_t model_bytes = options_.count * sizeof(T);
  if (options_.gpu) {
    if (is_versioned()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("'{}': models in GPU memory need the mode notify-ack, not {}",
                                options_.name, to_string(options_.mode)));
    }
    if (options_.neighborhood.in.size() + 1 > gpu::kMostInputs) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("'{}': {} in-neighbors; models in GPU memory have at most {}", options_.name,
                      options_.neighborhood.in.size(), gpu::kMostInputs - 1));
    }
    DUNLIN_ASSIGN(gpu_, load_cuda_driver());
    DUNLIN_ASSIGN(auto kernels, GpuKernels::load(gpu_, *options_.gpu));
    DUNLIN_ASSIGN(gpu_compute_, GpuCompute::create(fabric_, *gpu_, std::move(kernels)));
    DUNLIN_ASSIGN(lane_state_->memory, fabric_.allocate_on_gpu(gpu_, *options_.gpu, model_bytes));
    model_ = {reinterpret_cast<T*>(lane_state_->memory->data()), options_.count};
    DUNLIN_ASSIGN(payload_, lane_state_->memory->slice(0, model_bytes));
    return Status::ok();
  }
  // The model starts on a cache line, its version right before it.
  DUNLIN_ASSIGN(lane_state_->memory,
                fabric_.allocate(kCacheLine + versioned_slot_bytes(model_bytes)));
  const std::size_t header = kCacheLine - kVersionBytes;
  framed_ =
      lane_state_->memory->memory()->bytes().subspan(header, versioned_slot_bytes(model_bytes));
  model_ = {reinterpret_cast<T*>(lane_state_->memory->data() + kCacheLine), options_.count};
  DUNLIN_ASSIGN(payload_, is_versioned() ? lane_state_->memory->slice(header, framed_.size())
                                         : lane_state_->memory->slice(kCacheLine, model_bytes));
  return Status::ok();
}

template <typename T>
Status StochasticReduce<T>::allocate() {
  lane_state_ = std::make_unique<LaneState>();
  DUNLIN_TRY(allocate_model());
  const Neighborhood& around = options_.neighborhood;
  const std::string terms =
      fmt::format("float{} x {}, {}", 8 * sizeof(T), options_.count, to_string(options_.mode));
  DUNLIN_ASSIGN(
      lane_state_->exchange,
      transport::SlotExchange::prepare(
          fabric_, {options_.name, options_.membership.epoch, around.in, around.out,
                    payload_.size(), options_.depth, gpu_, options_.gpu.value_or(0), terms}));
  if (options_.mode == SyncMode::kBsp) {
    DUNLIN_ASSIGN(
        barrier_,
        Barrier::prepare(fabric_, fmt::format("{}/{}", options_.name, options_.membership.epoch),
                         options_.membership.members));
  }
  lane_state_->edges = around.out.size();
  lane_state_->completions = std::make_unique<transport::Completion[]>(around.out.size());
  lane_state_->is_posted.resize(around.out.size());
  inputs_.reserve(around.in.size());
  if (gpu_ != nullptr) gpu_inputs_.reserve(around.in.size());
  weights_.reserve(around.in.size());
  if (is_versioned()) copies_.assign(around.in.size(), std::vector<T>(options_.count));
  return Status::ok();
}

template <typename T>
StochasticReduce<T>::~StochasticReduce() {
  if (!lane_state_) return;
  if (!lane_state_->is_done()) fabric_.keep_until_done(std::move(lane_state_));
}

template <typename T>
Status StochasticReduce<T>::connect() {
  DUNLIN_TRY(lane_state_->exchange->connect());
  if (barrier_) DUNLIN_TRY(barrier_->connect());
  for (auto& edge : lane_state_->exchange->out()) {
    if (is_versioned()) {
      writers_.emplace_back(*lane_state_->exchange, edge);
    } else {
      senders_.emplace_back(*lane_state_->exchange, edge);
    }
  }
  for (auto& edge : lane_state_->exchange->in()) {
    if (is_versioned()) {
      readers_.emplace_back(edge);
    } else {
      receivers_.emplace_back(*lane_state_->exchange, edge);
    }
  }
  return Status::ok();
}

template <typename T>
Status StochasticReduce<T>::start() {
  if (phase_ != Phase::kIdle)
    return {Code::kInvalidArgument, "a reduce is started before the last one is done"};
  const std::uint64_t step = report_.step + 1;
  report_ = {};
  report_.step = step;
  began_ = fabric_.clock().now();
  if (is_versioned()) VersionedWriter::stamp(framed_, model_.size_bytes(), step);
  for (std::size_t edge = 0; edge < lane_state_->edges; ++edge) {
    lane_state_->is_posted[edge] = false;
    lane_state_->completions[edge].reset();
  }
  phase_ = Phase::kSend;
  steps_.begin();
  return Status::ok();
}

template <typename T>
Status StochasticReduce<T>::test() {
  return steps_.test();
}

template <typename T>
Status StochasticReduce<T>::step() {
  if (phase_ == Phase::kSend) {
    DUNLIN_TRY(send());
    sent_at_ = fabric_.clock().now();
    phase_ = Phase::kLocal;
  }
  // The average overwrites the model, so the lanes have to be done with it.
  if (phase_ == Phase::kLocal) {
    if (!lane_state_->is_done()) return Status::busy();
    for (std::size_t edge = 0; edge < lane_state_->edges; ++edge)
      DUNLIN_TRY(lane_state_->completions[edge].status());
    if (barrier_) DUNLIN_TRY(barrier_->start());
    phase_ = barrier_ ? Phase::kBarrier : Phase::kReceive;
  }
  if (phase_ == Phase::kBarrier) {
    DUNLIN_TRY(barrier_->test());
    phase_ = Phase::kReceive;
  }
  if (phase_ == Phase::kReceive) {
    DUNLIN_TRY(receive());
    phase_ = Phase::kAverage;
  }
  if (phase_ == Phase::kAverage) {
    if (!is_versioned()) DUNLIN_TRY(average_messages());
    phase_ = Phase::kAcknowledge;
  }
  if (phase_ == Phase::kAcknowledge) {
    DUNLIN_TRY(acknowledge());
    finish();
  }
  return Status::ok();
}

template <typename T>
Status StochasticReduce<T>::send() {
  bool is_all_sent = true;
  for (std::size_t edge = 0; edge < lane_state_->edges; ++edge) {
    if (lane_state_->is_posted[edge]) continue;
    Status status = send_to(edge);
    if (status.is_error())
      return std::move(status).with_context(fmt::format("sending model {}", report_.step));
    lane_state_->is_posted[edge] = status.is_ok();
    is_all_sent = is_all_sent && status.is_ok();
    if (status.is_ok()) report_.bytes_sent += payload_.size();
  }
  return is_all_sent ? Status::ok() : Status::busy();
}

template <typename T>
Status StochasticReduce<T>::send_to(std::size_t edge) {
  if (is_versioned())
    return writers_[edge].try_write(payload_, report_.step, &lane_state_->completions[edge]);
  return senders_[edge].try_send(payload_, report_.step, &lane_state_->completions[edge]);
}

template <typename T>
Status StochasticReduce<T>::receive() {
  if (is_versioned()) {
    report_.waited = fabric_.clock().now() - sent_at_;
    average_versioned();
  } else {
    for (const auto& receiver : receivers_) {
      if (!receiver.has_message()) return Status::busy();
    }
    report_.waited = fabric_.clock().now() - sent_at_;
    DUNLIN_TRY(take_messages());
  }
  return Status::ok();
}

template <typename T>
Status StochasticReduce<T>::take_messages() {
  inputs_.clear();
  weights_.clear();
  for (std::size_t edge = 0; edge < receivers_.size(); ++edge) {
    const Message message = *receivers_[edge].poll();
    if (message.tag != report_.step || message.data.size() != model_.size_bytes()) {
      return Status(
                 Code::kInternal,
                 fmt::format("model {} of {} bytes where model {} of {} bytes was due", message.tag,
                             message.data.size(), report_.step, model_.size_bytes()))
          .with_peer(receivers_[edge].peer());
    }
    inputs_.push_back(reinterpret_cast<const T*>(message.data.data()));
    weights_.push_back(static_cast<T>(options_.neighborhood.in_weights[edge]));
  }
  report_.inputs = static_cast<std::uint32_t>(inputs_.size());
  return Status::ok();
}

// kBusy while a GPU averages.
template <typename T>
Status StochasticReduce<T>::average_messages() {
  if (gpu_ != nullptr) {
    gpu_inputs_.clear();
    for (const T* const input : inputs_)
      gpu_inputs_.push_back(reinterpret_cast<const std::byte*>(input));
    auto* const model = reinterpret_cast<std::byte*>(model_.data());
    const Neighborhood& around = options_.neighborhood;
    return gpu_compute_->weighted_average(kDataType<T>, model, model, model_.size(),
                                          around.self_weight, gpu_inputs_, around.in_weights);
  }
  weighted_average(model_, static_cast<T>(options_.neighborhood.self_weight),
                   std::span<const T* const>(inputs_), std::span<const T>(weights_));
  return Status::ok();
}

// The reduce isn't done before every ACK is posted: a neighbor may wait for it, and the caller may
// not call this object again.
template <typename T>
Status StochasticReduce<T>::acknowledge() {
  bool is_all_posted = true;
  for (auto& receiver : receivers_) {
    Status status =
        receiver.released() < receiver.received() ? receiver.release() : receiver.progress();
    if (status.is_error()) return status;
    is_all_posted = is_all_posted && status.is_ok();
  }
  return is_all_posted ? Status::ok() : Status::busy();
}

template <typename T>
void StochasticReduce<T>::average_versioned() {
  inputs_.clear();
  weights_.clear();
  double sum = options_.neighborhood.self_weight;
  // After a barrier the models of this step are expected; without one, the newest models.
  const auto step = barrier_ ? std::optional(report_.step) : std::nullopt;
  for (std::size_t edge = 0; edge < readers_.size(); ++edge) {
    const auto outcome =
        readers_[edge].read(std::as_writable_bytes(std::span(copies_[edge])), step);
    if (outcome == VersionedReader::Outcome::kTorn) ++report_.torn;
    if (outcome == VersionedReader::Outcome::kStale) ++report_.stale;
    if (outcome != VersionedReader::Outcome::kFresh) continue;
    inputs_.push_back(copies_[edge].data());
    weights_.push_back(static_cast<T>(options_.neighborhood.in_weights[edge]));
    sum += options_.neighborhood.in_weights[edge];
  }
  report_.inputs = static_cast<std::uint32_t>(inputs_.size());
  if (sum == 0) return;  // the own model counts for nothing, and there is no other one
  // Equal weights divided by their sum would miss one over their number by a rounding.
  const auto is_own = [own = options_.neighborhood.self_weight](double each) {
    return each == own;
  };
  if (std::ranges::all_of(options_.neighborhood.in_weights, is_own))
    return uniform_average(model_, inputs_, static_cast<T>(inputs_.size() + 1));
  for (T& weight : weights_) weight = static_cast<T>(weight / sum);
  weighted_average(model_, static_cast<T>(options_.neighborhood.self_weight / sum),
                   std::span<const T* const>(inputs_), std::span<const T>(weights_));
}

template <typename T>
void StochasticReduce<T>::finish() {
  phase_ = Phase::kIdle;
  if (fabric_.trace() != nullptr) {
    const TimePoint end = fabric_.clock().now();
    fabric_.trace()->span("send", began_, sent_at_, static_cast<std::int64_t>(report_.bytes_sent));
    fabric_.trace()->span("wait", sent_at_, sent_at_ + report_.waited,
                          static_cast<std::int64_t>(report_.step));
    fabric_.trace()->span("average", sent_at_ + report_.waited, end, report_.inputs);
  }
}

template <typename T>
std::vector<Awaited> StochasticReduce<T>::awaited() const {
  std::vector<Awaited> waits;
  if (phase_ == Phase::kBarrier) return barrier_->awaited();
  for (std::size_t edge = 0; phase_ == Phase::kSend && edge < senders_.size(); ++edge) {
    if (lane_state_->is_posted[edge]) continue;
    waits.push_back({senders_[edge].peer(),
                     fmt::format("the ACK of model {}", senders_[edge].acknowledged() + 1)});
  }
  for (std::size_t edge = 0; phase_ == Phase::kLocal && edge < lane_state_->edges; ++edge) {
    if (!lane_state_->completions[edge].is_done())
      waits.push_back({options_.neighborhood.out[edge], "the completion of a put"});
  }
  if (is_versioned() || phase_ >= Phase::kAverage) return waits;
  for (const auto& receiver : receivers_) {
    if (!receiver.has_message())
      waits.push_back({receiver.peer(), fmt::format("model {}", report_.step)});
  }
  return waits;
}

template <typename T>
Rank StochasticReduce<T>::blocker() const {
  if (phase_ == Phase::kBarrier) return barrier_->blocker();
  for (std::size_t edge = 0; phase_ == Phase::kSend && edge < senders_.size(); ++edge) {
    if (!lane_state_->is_posted[edge]) return senders_[edge].peer();
  }
  for (std::size_t edge = 0; phase_ == Phase::kLocal && edge < lane_state_->edges; ++edge) {
    if (!lane_state_->completions[edge].is_done()) return options_.neighborhood.out[edge];
  }
  if (is_versioned() || phase_ >= Phase::kAverage) return {};
  for (const auto& receiver : receivers_) {
    if (!receiver.has_message()) return receiver.peer();
  }
  return {};
}

template <typename T>
Result<ReduceReport> StochasticReduce<T>::reduce(Duration timeout) {
  DUNLIN_TRY(start());
  const Within waiting = steps_.await();
  Status status = watch_.wait(
      [this] { return test(); },
      transport::Awaiting{[this] { return awaited(); }, [this] { return blocker(); }}, timeout);
  if (status.is_ok()) return report_;
  stop(status);
  return status;
}

template <typename T>
void StochasticReduce<T>::stop(const Status& outcome) {
  steps_.stop(outcome);
  if (barrier_) barrier_->stop(outcome);
  gpu_compute_.reset();  // waits for an average that is in progress
}

template class StochasticReduce<float>;
template class StochasticReduce<double>;

}  // namespace dunlin::collective
