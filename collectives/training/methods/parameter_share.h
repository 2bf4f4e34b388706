// ParameterShare: the common part of both kinds of parameter servers: the share of the model, its
// optimizer state, and the channels from and to all workers. Derived classes decide how gradients
// are applied and when workers are answered (parameter_server.cc, async_parameter_server.cc).
//
// parameter_worker.h describes the protocol. Owner thread only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "collectives/training/methods/inbox.h"
#include "collectives/training/methods/method_base.h"
#include "collectives/training/methods/parameter_wire.h"

namespace dunlin::training {

class ParameterShare : public MethodBase {
 public:
  ParameterShare(transport::Fabric& fabric, const MethodOptions& options);
  ~ParameterShare() override;
  Status prepare();
  Status connect() override;

  bool is_server() const final { return true; }
  // The parameters of the share.
  std::span<float> parameters() final { return floats_of(*lane_state_->parameters, range_.count); }
  std::span<float> gradient() final { return {}; }
  std::span<float> velocity() final { return sgd_.velocity(); }
  std::vector<transport::Awaited> awaited() const override;
  Rank blocker() const override;

 protected:
  enum class Life : std::uint8_t {
    kActive,
    kLeft,    // its kLeave has arrived
    kGone,    // its process ended after that
    kFailed,  // its process ended without kLeave
  };
  struct Worker {
    Worker(Rank which, transport::SlotExchange& exchange, transport::InSlots& edge)
        : rank(which), inbox(exchange, edge) {}

    Rank rank;
    Life life = Life::kActive;
    Inbox inbox;
    transport::Link* link = nullptr;
    std::unique_ptr<transport::RemoteRegion> region;
    transport::RemoteSlice parameters;  // the share in the worker's memory
    transport::NotifyId answer_cell{};
    std::uint64_t iteration = 1;  // current iteration
    std::size_t pieces = 0;       // pieces of its gradient that were taken
    FinishMessage finish;
    bool is_answer_due = false;
    bool is_stopped = false;  // sent with the answer
    Posted answer;
    std::unique_ptr<transport::LocalRegion> memory;  // asynchronous servers only
  };

  Status start_finish(float) final { return Status::ok(); }
  Status advance() final;
  // Workers cannot continue without the other servers' shares. on_death() handles dead workers.
  bool is_needed(Rank rank) const final { return roles_.is_server(rank); }

  // Take the next message of an active worker. Return kBusy if it has to stay in its slot for now.
  virtual Status take_gradient(Worker& worker, ModelRange piece, std::span<const float> values) = 0;
  virtual Status take_finish(Worker& worker) = 0;
  // Called after messages were taken. Returns kBusy if there was nothing to do.
  virtual Status apply() { return Status::busy(); }
  // Called for a worker that died before this rank was connected to it. An error ends the server.
  virtual Status on_absence(Rank worker) = 0;
  // Called when a worker has failed. An error ends the server.
  virtual Status on_death(Worker& worker, Status why) = 0;
  // True if the worker's next message may be taken now.
  virtual bool may_take(const Worker&) const { return true; }
  // The memory that is sent as the answer.
  virtual Result<transport::LocalSlice> answer_for(const Worker&) { return whole_share(); }

  ModelRange range() const { return range_; }
  const Pieces& pieces() const { return pieces_; }
  // The position of a piece in the share.
  std::size_t offset_of(ModelRange piece) const { return piece.first - range_.first; }
  std::deque<Worker>& workers();
  bool is_any_active() const;
  // Takes a step on the parameters. All initial parameters must have arrived.
  Status step(std::span<const float> gradient, float learning_rate);
  void answer(Worker& worker, bool is_stopped);

 private:
  // What lanes may still access when the method is destroyed.
  struct LaneState final : transport::KeptUntilDone {
    std::unique_ptr<transport::LocalRegion> parameters;
    std::unique_ptr<transport::SlotExchange> exchange;
    std::deque<Worker> workers;  // a deque, because completions must not move
    bool is_done() const override;
  };

  Result<transport::LocalSlice> whole_share() const {
    return slice_of(*lane_state_->parameters, {0, range_.count});
  }
  Status take(Worker& worker);
  // The worker whose initial parameters count. Null: no worker is left.
  const Worker* initial_worker() const;
  Status take_initial(Worker& worker, std::size_t piece, const transport::Message& message);
  Status post_answer(Worker& worker);
  Status connect_worker(transport::InSlots& edge);
  static Status check_acks(Worker& worker, Status sent);
  Status advance_worker(Worker& worker);
  Status check_workers();

  const ParameterRoles roles_;
  const ModelRange range_;
  const Pieces pieces_;
  Sgd sgd_;
  bool has_parameters_ = false;  // all initial parameters have arrived
  std::unique_ptr<LaneState> lane_state_;
  PeerTableWatch peer_watch_;
};

}  // namespace dunlin::training
