#include "collectives/training/methods/parameter_server.h"

#include <algorithm>
#include <cstring>

#include "collectives/kernels/average.h"
#include "collectives/training/methods/parameter_share.h"

namespace dunlin::training {
namespace {

class ParameterServer final : public ParameterShare {
 public:
  ParameterServer(transport::Fabric& fabric, const MethodOptions& options)
      : ParameterShare(fabric, options), average_(range().count) {}

 private:
  // The piece stays in its slot until it is averaged.
  Status take_gradient(Worker&, ModelRange, std::span<const float>) override {
    return Status::busy();
  }
  Status take_finish(Worker& worker) override;
  Status apply() override;
  Status on_absence(Rank worker) override { return fabric().peers().check(worker); }
  Status on_death(Worker&, Status why) override { return why; }

  bool is_piece_complete();
  Status average_piece();
  Status finish_iteration();

  std::vector<float> average_;
  std::size_t piece_ = 0;     // the next piece to average
  std::size_t finished_ = 0;  // workers that have ended the iteration
  float learning_rate_ = 0;
  bool is_stop_wanted_ = false;
  std::vector<const float*> inputs_;
  std::vector<float> weights_;
};

Status ParameterServer::take_finish(Worker& worker) {
  if (finished_ == 0) learning_rate_ = worker.finish.learning_rate;
  if (worker.finish.learning_rate != learning_rate_) {
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter server: in iteration {} one worker has learning rate {}, "
                              "another one {}",
                              worker.iteration, learning_rate_, worker.finish.learning_rate))
        .with_peer(worker.rank);
  }
  is_stop_wanted_ = is_stop_wanted_ || worker.finish.stop != 0;
  ++finished_;
  return Status::ok();
}

// True if the piece of every active worker has arrived. Workers that have left did so before this
// iteration.
bool ParameterServer::is_piece_complete() {
  return is_any_active() && std::all_of(workers().begin(), workers().end(), [&](Worker& worker) {
           if (worker.life != Life::kActive) return true;
           return worker.inbox.held() != nullptr &&
                  ParameterTag::unpack(worker.inbox.held()->tag).message ==
                      ParameterMessage::kGradient;
         });
}

Status ParameterServer::average_piece() {
  inputs_.clear();
  for (Worker& worker : workers()) {
    if (worker.life == Life::kActive)
      inputs_.push_back(reinterpret_cast<const float*>(worker.inbox.held()->data.data()));
  }
  const ModelRange range = pieces().at(piece_);
  const std::span<float> average = std::span(average_).subspan(offset_of(range), range.count);
  const float weight = 1.0F / static_cast<float>(inputs_.size());
  weights_.assign(inputs_.size() - 1, weight);
  // Begin with a copy of the first input, so that no value of the last iteration, such as a NaN,
  // enters the average.
  std::memcpy(average.data(), inputs_.front(), average.size_bytes());
  collective::weighted_average(average, weight, std::span(inputs_).subspan(1), weights_);
  for (Worker& worker : workers()) {
    if (worker.life != Life::kActive) continue;
    ++worker.pieces;
    DUNLIN_TRY(worker.inbox.release());
  }
  ++piece_;
  return Status::ok();
}

Status ParameterServer::finish_iteration() {
  // The step changes memory that lanes may still read.
  for (const Worker& worker : workers()) {
    if (worker.life == Life::kActive && worker.answer.is_posted) return Status::busy();
  }
  DUNLIN_TRY(step(average_, learning_rate_));
  for (Worker& worker : workers()) {
    if (worker.life == Life::kActive) answer(worker, is_stop_wanted_);
  }
  piece_ = 0;
  finished_ = 0;
  is_stop_wanted_ = false;
  return Status::ok();
}

Status ParameterServer::apply() {
  if (piece_ < pieces().size()) return is_piece_complete() ? average_piece() : Status::busy();
  const auto active = static_cast<std::size_t>(
      std::count_if(workers().begin(), workers().end(),
                    [](const Worker& worker) { return worker.life == Life::kActive; }));
  return finished_ == active ? finish_iteration() : Status::busy();
}

}  // namespace

Result<std::unique_ptr<Method>> prepare_parameter_server(transport::Fabric& fabric,
                                                         const MethodOptions& options) {
  return prepare_method<ParameterServer>(fabric, options);
}

}  // namespace dunlin::training
