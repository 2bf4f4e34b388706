#include "collectives/training/methods/async_parameter_server.h"

#include <algorithm>
#include <cstring>

#include "collectives/training/methods/parameter_share.h"
#include "runtime/log.h"

namespace dunlin::training {
namespace {

class AsyncParameterServer final : public ParameterShare {
 public:
  using ParameterShare::ParameterShare;
  Status connect() override;

 private:
  Status take_gradient(Worker& worker, ModelRange piece, std::span<const float> values) override;
  Status take_finish(Worker& worker) override;
  Status on_absence(Rank worker) override;
  Status on_death(Worker& worker, Status why) override;
  // The worker's memory belongs to the answer until that has left.
  bool may_take(const Worker& worker) const override { return !worker.answer.is_posted; }
  Result<transport::LocalSlice> answer_for(const Worker& worker) override {
    return slice_of(*worker.memory, {0, range().count});
  }
  std::span<float> memory_of(const Worker& worker) const {
    return floats_of(*worker.memory, range().count);
  }
};

Status AsyncParameterServer::connect() {
  DUNLIN_TRY(ParameterShare::connect());
  for (Worker& worker : workers()) {
    DUNLIN_ASSIGN(worker.memory, fabric().allocate(range().count * sizeof(float)));
  }
  return Status::ok();
}

Status AsyncParameterServer::take_gradient(Worker& worker, ModelRange piece,
                                           std::span<const float> values) {
  std::memcpy(memory_of(worker).data() + offset_of(piece), values.data(), values.size_bytes());
  ++worker.pieces;
  return worker.inbox.release();
}

Status AsyncParameterServer::take_finish(Worker& worker) {
  const std::span<float> memory = memory_of(worker);
  DUNLIN_TRY(step(memory, worker.finish.learning_rate));
  std::memcpy(memory.data(), parameters().data(), memory.size_bytes());
  answer(worker, worker.finish.stop != 0);
  return Status::ok();
}

Status AsyncParameterServer::on_absence(Rank worker) {
  DUNLIN_WARN("starting without a worker: {}", fabric().peers().check(worker).to_string());
  return Status::ok();
}

Status AsyncParameterServer::on_death(Worker& worker, Status why) {
  DUNLIN_WARN("continuing without a worker: {}", why.to_string());
  const bool is_anybody_left =
      std::any_of(workers().begin(), workers().end(),
                  [](const Worker& other) { return other.life != Life::kFailed; });
  return is_anybody_left ? Status::ok() : std::move(why).with_peer(worker.rank);
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_async_parameter_server(transport::Fabric& fabric,
                                                               const MethodOptions& options) {
  return prepare_method<AsyncParameterServer>(fabric, options);
}

}  // namespace dunlin::training
