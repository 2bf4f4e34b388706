#include "collectives/training/methods/partial.h"

#include <algorithm>
#include <string>

#include "collectives/barrier/barrier.h"
#include "collectives/groups/group_average.h"
#include "collectives/training/methods/method_base.h"
#include "collectives/training/methods/model_compute.h"
#include "runtime/bytes.h"

namespace dunlin::training {
namespace {

class Partial final : public MethodBase {
 public:
  Partial(transport::Fabric& fabric, const MethodOptions& options) : MethodBase(fabric, options) {}
  Status prepare();
  Status connect() override;

  std::span<float> parameters() override { return parameters_.elements(); }
  std::span<float> gradient() override { return gradient_.elements(); }
  std::span<float> velocity() override { return compute_->velocity(); }
  std::vector<transport::Awaited> awaited() const override {
    return barrier_ && phase() == Phase::kLeaving ? barrier_->awaited() : average_->awaited();
  }
  Rank blocker() const override {
    return barrier_ && phase() == Phase::kLeaving ? barrier_->blocker() : average_->blocker();
  }

 private:
  enum class Step : std::uint8_t { kNone, kOptimize, kCopyIn, kAverage, kCopyOut };

  Status start_finish(float learning_rate) override;
  Status start_leave() override { return barrier_ ? barrier_->start() : average_->leave(); }
  Status advance() override;
  bool is_needed(Rank) const override { return is_static(); }
  Status start_average();
  Status synchronize();
  void take_flag();
  std::string key() const { return options().name + "/ranks of the first host"; }
  bool is_static() const { return options().groups == collective::GroupSource::kStatic; }
  // Only the end under a static schedule, which GPUs don't have, needs a flag: the element after
  // the model, which is averaged with it.
  bool has_flags() const { return !options().gpu; }
  float& flag() { return average_->model().back(); }
  std::span<float> model() { return average_->model().first(options().count); }

  std::unique_ptr<ModelCompute> compute_;
  ModelVector parameters_;
  ModelVector gradient_;
  float learning_rate_ = 0;
  std::unique_ptr<collective::GroupAverage> average_;
  // For leaving under a static schedule, because other ranks may still be in their last average.
  std::unique_ptr<collective::Barrier> barrier_;
  Step step_ = Step::kNone;
  bool is_stop_wanted_ = false;  // by this rank, in this iteration or before
  bool has_flag_ = false;        // this rank knows that some rank wants to stop
  std::uint64_t averages_ = 0;
};

// Hosts may have different numbers of ranks. All ranks use that of the first host.
Status Partial::prepare() {
  DUNLIN_ASSIGN(compute_, ModelCompute::create(fabric(), options()));
  DUNLIN_ASSIGN(parameters_, compute_->allocate(options().count));
  DUNLIN_ASSIGN(gradient_, compute_->allocate(options().count));
  if (is_static()) {
    DUNLIN_ASSIGN(barrier_,
                  collective::Barrier::prepare(fabric(), options().name + "/end", members()));
  }
  if (fabric().rank() != members().front()) return Status::ok();
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(fabric().bootstrap().job().local_size));
  return fabric().bootstrap().publish(key(), writer.take());
}

Status Partial::connect() {
  DUNLIN_ASSIGN(const Bytes offer, fabric().bootstrap().lookup_from(members().front(), key(),
                                                                    fabric().config().deadline));
  ByteReader reader(offer);
  const auto local_size = static_cast<int>(reader.number<std::uint32_t>());
  if (!reader.at_end() || local_size < 1)
    return {Code::kCorrupted, "the first rank published an invalid number of ranks on its host"};
  collective::GroupAverageOptions wanted;
  wanted.name = options().name;
  wanted.count = options().count + (has_flags() ? 1 : 0);
  wanted.partial.gpu = options().gpu;
  wanted.source = options().groups;
  wanted.members = options().members;
  // Members of an elastic job may be on any hosts, so that each of them counts as one.
  wanted.groups = groups_of(options(), fabric().size(), wanted.members.empty() ? local_size : 1);
  wanted.groups.group_size = std::min(wanted.groups.group_size, std::max(size(), 2));
  DUNLIN_ASSIGN(average_, collective::GroupAverage::create(fabric(), std::move(wanted)));
  return barrier_ ? barrier_->connect() : Status::ok();
}

Status Partial::start_finish(float learning_rate) {
  learning_rate_ = learning_rate;
  step_ = Step::kOptimize;
  is_stop_wanted_ = is_stop_wanted_ || wants_stop();
  return Status::ok();
}

Status Partial::start_average() {
  if (has_flags()) {
    if (averages_ % kSpread == 0) has_flag_ = is_stop_wanted_;
    flag() = has_flag_ ? 1.0F : 0.0F;
  }
  return average_->start(averages_);
}

void Partial::take_flag() {
  ++averages_;
  if (has_flags()) has_flag_ = has_flag_ || flag() > 0;
  set_stopped(is_static() ? has_flag_ && averages_ % kSpread == 0 : wants_stop());
  const collective::GroupAverageStatistics done = average_->statistics();
  costs().bytes_sent = static_cast<std::uint64_t>(
      done.models_sent * static_cast<double>(average_->model().size_bytes()));
  costs().synchronizations = done.groups;
}

// Returns kBusy until the iteration has ended.
Status Partial::synchronize() {
  if (step_ == Step::kOptimize) {
    if (!options().has_own_step)
      DUNLIN_TRY(compute_->step(parameters(), gradient(), learning_rate_));
    if ((iteration() + 1) % options().section_length != 0) {
      step_ = Step::kNone;
      set_stopped(!is_static() && wants_stop());
      return Status::ok();
    }
    step_ = Step::kCopyIn;
  }
  if (step_ == Step::kCopyIn) {
    DUNLIN_TRY(compute_->copy(parameters(), model()));
    DUNLIN_TRY(start_average());
    step_ = Step::kAverage;
  }
  if (step_ == Step::kAverage) {
    DUNLIN_TRY(average_->test());
    step_ = Step::kCopyOut;
  }
  if (step_ == Step::kCopyOut) {
    DUNLIN_TRY(compute_->copy(model(), parameters()));
    take_flag();
    step_ = Step::kNone;
  }
  return Status::ok();
}

Status Partial::advance() {
  if (phase() == Phase::kLeaving && !barrier_) return average_->test();
  if (phase() == Phase::kFinishing) return synchronize();
  average_->progress();
  return phase() == Phase::kLeaving ? barrier_->test() : Status::ok();
}

}  // namespace

collective::GroupOptions groups_of(const MethodOptions& options, int ranks, int local_size) {
  collective::GroupOptions groups = options.generator;
  if (groups.layout == collective::WorkerLayout{}) {
    const int per_host = ranks % local_size == 0 ? local_size : 1;
    groups.layout = {ranks / per_host, per_host};
  }
  groups.group_size = std::min(groups.group_size, ranks);
  groups.seed = options.seed;
  return groups;
}

Result<std::unique_ptr<Method>> prepare_partial(transport::Fabric& fabric,
                                                const MethodOptions& options) {
  return prepare_method<Partial>(fabric, options);
}

}  // namespace dunlin::training
