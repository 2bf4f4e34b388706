#include "collectives/training/methods/partial.h"

#include <algorithm>
#include <string>

#include "collectives/barrier/barrier.h"
#include "collectives/groups/group_average.h"
#include "collectives/training/methods/method_base.h"
#include "runtime/bytes.h"

namespace dunlin::training {
namespace {

class Partial final : public MethodBase {
 public:
  Partial(transport::Fabric& fabric, const MethodOptions& options)
      : MethodBase(fabric, options),
        sgd_(options.sgd, options.count),
        parameters_(options.count),
        gradient_(options.count) {}
  Status prepare();
  Status connect() override;

  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradient() override { return gradient_; }
  std::span<float> velocity() override { return sgd_.velocity(); }
  std::vector<transport::Awaited> awaited() const override {
    return barrier_ && phase() == Phase::kLeaving ? barrier_->awaited() : average_->awaited();
  }

 private:
  Status start_finish(float learning_rate) override;
  Status start_leave() override { return barrier_ ? barrier_->start() : average_->leave(); }
  Status advance() override;
  bool is_needed(Rank) const override { return is_static(); }
  void take_average();
  std::string key() const { return options().name + "/ranks of the first host"; }
  bool is_static() const { return options().groups == collective::GroupSource::kStatic; }
  // The element after the model, which is averaged with it.
  float& flag() { return average_->model().back(); }

  Sgd sgd_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  std::unique_ptr<collective::GroupAverage> average_;
  // For leaving under a static schedule, because other ranks may still be in their last average.
  std::unique_ptr<collective::Barrier> barrier_;
  bool is_averaging_ = false;
  bool is_stop_wanted_ = false;  // by this rank, in this iteration or before
  bool has_flag_ = false;        // this rank knows that some rank wants to stop
  std::uint64_t averages_ = 0;
};

// Hosts may have different numbers of ranks. All ranks use that of the first host.
Status Partial::prepare() {
  if (is_static()) {
    DUNLIN_ASSIGN(barrier_,
                  collective::Barrier::prepare(fabric(), options().name + "/end", all_ranks()));
  }
  if (fabric().rank() != all_ranks().front()) return Status::ok();
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(fabric().bootstrap().job().local_size));
  return fabric().bootstrap().publish(key(), writer.take());
}

Status Partial::connect() {
  DUNLIN_ASSIGN(const Bytes offer, fabric().bootstrap().lookup_from(all_ranks().front(), key(),
                                                                    fabric().config().deadline));
  ByteReader reader(offer);
  const auto local_size = static_cast<int>(reader.number<std::uint32_t>());
  if (!reader.at_end() || local_size < 1)
    return {Code::kCorrupted, "the first rank published an invalid number of ranks on its host"};
  collective::GroupAverageOptions wanted;
  wanted.name = options().name;
  wanted.count = options().count + 1;
  wanted.source = options().groups;
  wanted.groups = groups_of(options(), fabric().size(), local_size);
  DUNLIN_ASSIGN(average_, collective::GroupAverage::create(fabric(), std::move(wanted)));
  return barrier_ ? barrier_->connect() : Status::ok();
}

Status Partial::start_finish(float learning_rate) {
  if (!options().has_own_step) sgd_.step(parameters_, gradient_, learning_rate);
  is_stop_wanted_ = is_stop_wanted_ || wants_stop();
  is_averaging_ = (iteration() + 1) % options().section_length == 0;
  if (!is_averaging_) {
    set_stopped(!is_static() && wants_stop());
    return Status::ok();
  }
  if (averages_ % kSpread == 0) has_flag_ = is_stop_wanted_;
  std::ranges::copy(parameters_, average_->model().begin());
  flag() = has_flag_ ? 1.0F : 0.0F;
  return average_->start(averages_);
}

void Partial::take_average() {
  is_averaging_ = false;
  ++averages_;
  const std::span<float> model = average_->model();
  std::copy_n(model.begin(), parameters_.size(), parameters_.begin());
  has_flag_ = has_flag_ || flag() > 0;
  set_stopped(is_static() ? has_flag_ && averages_ % kSpread == 0 : wants_stop());
  const collective::GroupAverageStatistics done = average_->statistics();
  costs().bytes_sent =
      static_cast<std::uint64_t>(done.models_sent * static_cast<double>(model.size_bytes()));
  costs().synchronizations = done.groups;
}

Status Partial::advance() {
  if (phase() == Phase::kLeaving && !barrier_) return average_->test();
  if (phase() != Phase::kFinishing || !is_averaging_) {
    average_->progress();
    return phase() == Phase::kLeaving ? barrier_->test() : Status::ok();
  }
  DUNLIN_TRY(average_->test());
  take_average();
  return Status::ok();
}

}  // namespace

collective::GroupOptions groups_of(const MethodOptions& options, int ranks, int local_size) {
  collective::GroupOptions groups = options.generator;
  if (groups.layout == collective::WorkerLayout{}) {
    const int per_node = ranks % local_size == 0 ? local_size : 1;
    groups.layout = {ranks / per_node, per_node};
  }
  groups.group_size = std::min(groups.group_size, ranks);
  groups.seed = options.seed;
  return groups;
}

Result<std::unique_ptr<Method>> prepare_partial(transport::Fabric& fabric,
                                                const MethodOptions& options) {
  auto method = std::make_unique<Partial>(fabric, options);
  DUNLIN_TRY(method->prepare());
  return std::unique_ptr<Method>(std::move(method));
}

}  // namespace dunlin::training
