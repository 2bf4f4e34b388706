#include "collectives/training/methods/stochastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "collectives/barrier/barrier.h"
#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"
#include "collectives/graph/rebuild.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "collectives/training/methods/method_base.h"
#include "collectives/training/methods/model_compute.h"
#include "transports/channel/queue.h"

namespace dunlin::training {
namespace {

using collective::SyncMode;

// The next message is sent only after the ACK of the last one.
constexpr std::uint32_t kStopDepth = 1;
// Later than any iteration.
constexpr std::uint64_t kNever = ~std::uint64_t{0};

class Stochastic final : public MethodBase {
 public:
  Stochastic(transport::Fabric& fabric, const MethodOptions& options)
      : MethodBase(fabric, options) {}
  Status prepare();
  Status connect() override;

  std::span<float> parameters() override { return reduce_->model(); }
  std::span<float> gradient() override { return gradient_.elements(); }
  std::span<float> velocity() override { return compute_->velocity(); }
  std::vector<transport::Awaited> awaited() const override;
  Rank blocker() const override;

 private:
  enum class Step : std::uint8_t { kNone, kOptimize, kTellNeighbors, kReduce };

  Status start_finish(float learning_rate) override;
  Status start_leave() override { return barrier_->start(); }
  Status advance() override;
  Status receive_last();
  Status send_last();
  Status average();
  bool is_in_step() const { return options().sync != SyncMode::kAsync; }

  std::unique_ptr<ModelCompute> compute_;
  ModelVector gradient_;
  float learning_rate_ = 0;
  std::unique_ptr<collective::StochasticReduce<float>> reduce_;
  std::unique_ptr<collective::Barrier> barrier_;  // for leaving

  // Channels along the graph's edges, for the number of the last iteration.
  std::unique_ptr<transport::SlotExchange> exchange_;
  std::vector<transport::SendQueue> out_;
  std::vector<transport::ReceiveQueue> in_;
  std::vector<std::uint64_t> sent_last_;  // by out-neighbor: the last iteration that was sent
  std::uint64_t diameter_ = 1;            // at least 1
  std::uint64_t last_ = kNever;           // the last iteration, counted from 1
  Step step_ = Step::kNone;
};

Status Stochastic::prepare() {
  const MethodOptions& wanted = options();
  DUNLIN_ASSIGN(compute_, ModelCompute::create(fabric(), wanted));
  DUNLIN_ASSIGN(gradient_, compute_->allocate(wanted.count));
  DUNLIN_ASSIGN(const auto graph, graph_of(wanted, size()));
  collective::ReduceOptions reduce;
  reduce.name = wanted.name + "/models";
  reduce.membership = {0, members()};
  DUNLIN_ASSIGN(reduce.neighborhood,
                collective::neighborhood_of(graph, collective::Weighting::kUniform, members(),
                                            fabric().rank()));
  reduce.count = wanted.count;
  reduce.mode = wanted.sync;
  reduce.depth = wanted.depth;
  reduce.gpu = wanted.gpu;
  if (const auto diameter = collective::diameter(graph))
    diameter_ = static_cast<std::uint64_t>(std::max(diameter->upper, 1));
  transport::SlotOptions stops;
  stops.name = wanted.name + "/last iteration";
  stops.in = reduce.neighborhood.in;
  stops.out = reduce.neighborhood.out;
  stops.slot_bytes = sizeof last_;
  stops.depth = kStopDepth;
  sent_last_.assign(stops.out.size(), kNever);
  DUNLIN_ASSIGN(exchange_, transport::SlotExchange::prepare(fabric(), stops));
  DUNLIN_ASSIGN(reduce_, collective::StochasticReduce<float>::prepare(fabric(), reduce));
  DUNLIN_ASSIGN(barrier_, collective::Barrier::prepare(fabric(), wanted.name + "/end", members()));
  return Status::ok();
}

Status Stochastic::connect() {
  DUNLIN_TRY(exchange_->connect());
  DUNLIN_TRY(reduce_->connect());
  DUNLIN_TRY(barrier_->connect());
  for (auto& edge : exchange_->out()) out_.emplace_back(*exchange_, edge);
  for (auto& edge : exchange_->in()) in_.emplace_back(*exchange_, edge);
  return Status::ok();
}

Status Stochastic::start_finish(float learning_rate) {
  learning_rate_ = learning_rate;
  if (wants_stop() && is_in_step())
    last_ = std::min(last_, report().iterations + 1 + diameter_ - 1);
  step_ = options().has_own_step ? Step::kTellNeighbors : Step::kOptimize;
  return Status::ok();
}

Status Stochastic::receive_last() {
  for (transport::ReceiveQueue& queue : in_) {
    if (Status status = queue.progress(); status.is_error()) return status;
    while (const auto message = queue.poll()) {
      std::uint64_t last = kNever;
      if (message->data.size() != sizeof last)
        return Status(Code::kCorrupted, "a message with the last iteration has another size")
            .with_peer(queue.peer());
      std::memcpy(&last, message->data.data(), sizeof last);
      last_ = std::min(last_, last);
      if (Status status = queue.release(); status.is_error()) return status;
    }
  }
  return Status::ok();
}

// Returns kBusy until every out-neighbor has acknowledged the last iteration that this rank knows.
Status Stochastic::send_last() {
  bool is_known = true;
  for (std::size_t i = 0; i < out_.size(); ++i) {
    if (last_ < sent_last_[i]) {
      Status status = out_[i].try_send_inline(std::as_bytes(std::span(&last_, 1)), 0);
      if (status.is_error()) return status;
      if (status.is_ok()) sent_last_[i] = last_;
    }
    is_known = is_known && sent_last_[i] == last_ && out_[i].acknowledged() == out_[i].sent();
  }
  return is_known ? Status::ok() : Status::busy();
}

Status Stochastic::average() {
  if (step_ == Step::kOptimize) {
    DUNLIN_TRY(compute_->step(parameters(), gradient(), learning_rate_));
    step_ = Step::kTellNeighbors;
  }
  if (step_ == Step::kTellNeighbors) {
    DUNLIN_TRY(send_last());
    DUNLIN_TRY(reduce_->start());
    step_ = Step::kReduce;
  }
  DUNLIN_TRY(reduce_->test());
  step_ = Step::kNone;
  costs().bytes_sent += reduce_->report().bytes_sent;
  if (reduce_->report().inputs > 0) ++costs().synchronizations;
  // What in-neighbors sent before their models has arrived by now.
  DUNLIN_TRY(receive_last());
  set_stopped(is_in_step() ? report().iterations + 1 >= last_ : wants_stop());
  return Status::ok();
}

Status Stochastic::advance() {
  DUNLIN_TRY(receive_last());
  if (phase() == Phase::kFinishing) return average();
  return phase() == Phase::kLeaving ? barrier_->test() : Status::ok();
}

Rank Stochastic::blocker() const {
  if (phase() == Phase::kLeaving) return barrier_->blocker();
  if (phase() != Phase::kFinishing) return {};
  if (step_ == Step::kReduce) return reduce_->blocker();
  for (const transport::SendQueue& queue : out_) {
    if (queue.acknowledged() < queue.sent()) return queue.peer();
  }
  return {};
}

std::vector<transport::Awaited> Stochastic::awaited() const {
  if (phase() == Phase::kLeaving) return barrier_->awaited();
  if (phase() != Phase::kFinishing) return {};
  if (step_ == Step::kReduce) return reduce_->awaited();
  std::vector<transport::Awaited> awaited;
  for (const transport::SendQueue& queue : out_) {
    if (queue.acknowledged() < queue.sent())
      awaited.push_back({queue.peer(), "the ACK of the last iteration's number"});
  }
  return awaited;
}

}  // namespace

Result<collective::Graph> graph_of(const MethodOptions& options, int ranks) {
  return options.members.empty() ? collective::make_graph(options.graph, ranks)
                                 : collective::resize_graph(options.graph, ranks);
}

Result<std::unique_ptr<Method>> prepare_stochastic(transport::Fabric& fabric,
                                                   const MethodOptions& options) {
  return prepare_method<Stochastic>(fabric, options);
}

}  // namespace dunlin::training
