#include "collectives/training/methods/all_reduce.h"

#include "collectives/training/methods/communicator_method.h"

namespace dunlin::training {
namespace {

class AllReduce final : public CommunicatorMethod {
 public:
  AllReduce(transport::Fabric& fabric, const MethodOptions& options)
      : CommunicatorMethod(fabric, options), pieces_({0, options.count}, options.piece_elements) {}

  Status prepare() override {
    DUNLIN_TRY(CommunicatorMethod::prepare());
    DUNLIN_ASSIGN(parameters_, compute().allocate(options().count));
    return Status::ok();
  }
  std::span<float> parameters() override { return parameters_.elements(); }
  std::span<float> gradient() override { return shared().elements(); }

 private:
  Status start_begin(std::uint64_t) override {
    pieces_.reset();
    return Status::ok();
  }
  Status start_part(ModelRange range) override { return pieces_.add(range); }
  Status start_finish(float learning_rate) override {
    learning_rate_ = learning_rate;
    shared().flag() = wants_stop() ? 1.0F : 0.0F;
    pieces_.add_all();
    return Status::ok();
  }
  Status advance() override;
  Status start_averages();

  ModelVector parameters_;
  Pieces pieces_;
  float learning_rate_ = 0;
};

// Starts averages in the order of the pieces. The last piece carries the flag, so it waits for
// finish().
Status AllReduce::start_averages() {
  const std::size_t most = phase() == Phase::kFinishing ? pieces_.size() : pieces_.size() - 1;
  while (averages_started() < std::min(pieces_.ready(), most))
    DUNLIN_TRY(start_average(pieces_.at(averages_started())));
  return Status::ok();
}

Status AllReduce::advance() {
  if (phase() == Phase::kLeaving) return test_barrier();
  if (phase() == Phase::kComputing || phase() == Phase::kFinishing) {
    if (Status status = start_averages(); status.is_error()) return status;
  }
  DUNLIN_TRY(test_averages());
  if (phase() != Phase::kFinishing) return Status::ok();
  if (averages_started() < pieces_.size()) return Status::busy();
  DUNLIN_TRY(compute().step(parameters(), gradient(), learning_rate_));
  forget_averages();
  set_stopped(shared().flag() > 0);
  ++costs().synchronizations;
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_all_reduce(transport::Fabric& fabric,
                                                   const MethodOptions& options) {
  return prepare_method<AllReduce>(fabric, options);
}

}  // namespace dunlin::training
