#include "collectives/training/methods/local_sgd.h"

#include "collectives/training/methods/communicator_method.h"

namespace dunlin::training {
namespace {

class LocalSgd final : public CommunicatorMethod {
 public:
  LocalSgd(transport::Fabric& fabric, const MethodOptions& options)
      : CommunicatorMethod(fabric, options) {}

  Status prepare() override {
    DUNLIN_TRY(CommunicatorMethod::prepare());
    DUNLIN_ASSIGN(gradient_, compute().allocate(options().count));
    return Status::ok();
  }
  std::span<float> parameters() override { return shared().elements(); }
  std::span<float> gradient() override { return gradient_.elements(); }

 private:
  Status start_finish(float learning_rate) override {
    learning_rate_ = learning_rate;
    is_step_due_ = !options().has_own_step;
    is_stop_wanted_ = is_stop_wanted_ || wants_stop();
    is_average_due_ = (iteration() + 1) % options().section_length == 0;
    shared().flag() = is_stop_wanted_ ? 1.0F : 0.0F;
    return Status::ok();
  }
  Status advance() override;

  ModelVector gradient_;
  float learning_rate_ = 0;
  bool is_step_due_ = false;
  bool is_stop_wanted_ = false;  // since the last average
  bool is_average_due_ = false;
};

Status LocalSgd::advance() {
  if (phase() == Phase::kLeaving) return test_barrier();
  if (is_step_due_) DUNLIN_TRY(compute().step(parameters(), gradient(), learning_rate_));
  is_step_due_ = false;
  const bool has_average = phase() == Phase::kFinishing && is_average_due_;
  if (has_average && averages_started() == 0) {
    DUNLIN_TRY(start_average({0, options().count}));
  }
  DUNLIN_TRY(test_averages());
  if (!has_average) return Status::ok();
  forget_averages();
  set_stopped(shared().flag() > 0);
  is_stop_wanted_ = false;
  ++costs().synchronizations;
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_local_sgd(transport::Fabric& fabric,
                                                  const MethodOptions& options) {
  return prepare_method<LocalSgd>(fabric, options);
}

}  // namespace dunlin::training
