#include "collectives/training/methods/straggler_ring.h"

#include "collectives/barrier/barrier.h"
#include "collectives/straggler/straggler_ring.h"
#include "collectives/training/methods/method_base.h"
#include "collectives/training/methods/model_compute.h"

namespace dunlin::training {
namespace {

class StragglerRing final : public MethodBase {
 public:
  StragglerRing(transport::Fabric& fabric, const MethodOptions& options)
      : MethodBase(fabric, options) {}
  Status prepare();
  Status connect() override;

  std::span<float> parameters() override { return parameters_.elements(); }
  std::span<float> gradient() override { return ring_->data().first(options().count); }
  std::span<float> velocity() override { return compute_->velocity(); }
  std::vector<transport::Awaited> awaited() const override;
  Rank blocker() const override;
  std::optional<TimePoint> next_event() const override;

 private:
  Status start_finish(float learning_rate) override;
  Status start_leave() override { return barrier_->start(); }
  Status advance() override;
  float& flag() { return ring_->data()[options().count]; }

  std::unique_ptr<ModelCompute> compute_;
  ModelVector parameters_;
  std::unique_ptr<collective::StragglerRing<float>> ring_;
  std::unique_ptr<collective::Barrier> barrier_;  // for leaving
  float learning_rate_ = 0;
};

Status StragglerRing::prepare() {
  DUNLIN_ASSIGN(compute_, ModelCompute::create(fabric(), options()));
  DUNLIN_ASSIGN(parameters_, compute_->allocate(options().count));
  collective::StragglerOptions ring;
  ring.name = options().name + "/ring";
  ring.membership = {0, members()};
  ring.count = options().count + 1;
  ring.is_average = true;
  ring.lateness = options().lateness;
  DUNLIN_ASSIGN(ring_, collective::StragglerRing<float>::prepare(fabric(), ring));
  DUNLIN_ASSIGN(barrier_,
                collective::Barrier::prepare(fabric(), options().name + "/end", members()));
  return Status::ok();
}

Status StragglerRing::connect() {
  DUNLIN_TRY(ring_->connect());
  return barrier_->connect();
}

Status StragglerRing::start_finish(float learning_rate) {
  learning_rate_ = learning_rate;
  flag() = wants_stop() ? 1.0F : 0.0F;
  return ring_->start();
}

Status StragglerRing::advance() {
  if (phase() == Phase::kLeaving) return barrier_->test();
  if (phase() != Phase::kFinishing) return Status::ok();
  DUNLIN_TRY(ring_->test());
  DUNLIN_TRY(compute_->step(parameters(), gradient(), learning_rate_));
  costs().bytes_sent += ring_->report().bytes_sent;
  ++costs().synchronizations;
  set_stopped(flag() > 0);
  return Status::ok();
}

std::optional<TimePoint> StragglerRing::next_event() const {
  return phase() == Phase::kFinishing ? ring_->next_event() : std::nullopt;
}

Rank StragglerRing::blocker() const {
  if (phase() == Phase::kLeaving) return barrier_->blocker();
  return phase() == Phase::kFinishing ? ring_->blocker() : Rank();
}

std::vector<transport::Awaited> StragglerRing::awaited() const {
  if (phase() == Phase::kLeaving) return barrier_->awaited();
  return phase() == Phase::kFinishing ? ring_->awaited() : std::vector<transport::Awaited>();
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_straggler_ring(transport::Fabric& fabric,
                                                       const MethodOptions& options) {
  return prepare_method<StragglerRing>(fabric, options);
}

}  // namespace dunlin::training
