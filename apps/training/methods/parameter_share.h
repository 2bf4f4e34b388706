// ParameterShare: what both kinds of parameter servers have in common: the share of the model, the
// optimizer's state for it, and the ways from and to all workers. What is done with gradients, and
// when workers are answered, is the servers' own (parameter_server.cc, async_parameter_server.cc).
//
// The protocol is described in parameter_worker.h. Owner thread only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "apps/training/methods/inbox.h"
#include "apps/training/methods/method_base.h"
#include "apps/training/methods/parameter_wire.h"

namespace dunlin::training {

class ParameterShare : public MethodBase {
 public:
  ParameterShare(transport::Fabric& fabric, const MethodOptions& options);
  ~ParameterShare() override;
  Status prepare();
  Status connect() override;

  bool is_server() const final { return true; }
  // Of the share.
  std::span<float> parameters() final { return floats_of(*wire_->parameters, range_.count); }
  std::span<float> gradient() final { return {}; }
  std::span<float> velocity() final { return sgd_.velocity(); }
  std::vector<transport::Awaited> awaited() const override;

 protected:
  enum class Life : std::uint8_t {
    kActive,
    kLeft,  // has said farewell
    kGone,  // after that
    kLost,  // without it
  };
  struct Worker {
    Worker(Rank which, transport::SlotExchange& exchange, transport::InSlots& edge)
        : rank(which), inbox(exchange, edge) {}

    Rank rank;
    Life life = Life::kActive;
    Inbox inbox;
    transport::Link* link = nullptr;
    std::unique_ptr<transport::RemoteRegion> region;
    transport::RemoteSlice parameters;  // the share in its memory
    transport::NotifyId answer_cell{};
    std::uint64_t iteration = 1;  // that it is in
    std::size_t pieces = 0;       // of the iteration's gradient that were taken
    FinishWord finish;
    bool is_answer_due = false;
    bool is_stopped = false;  // what the answer says
    Posted answer;
    std::unique_ptr<transport::LocalRegion> memory;  // of an asynchronous server
  };

  Status start_finish(float) final { return Status::ok(); }
  Status advance() final;
  // Workers can't go on without the others' shares. Their own losses are the server's affair.
  bool is_needed(Rank rank) const final { return roles_.is_server(rank); }

  // Takes the next message of an active worker: kBusy where it has to stay for now.
  virtual Status take_gradient(Worker& worker, ModelRange piece, std::span<const float> values) = 0;
  virtual Status take_finish(Worker& worker) = 0;
  // After messages were taken: what can be done now. kBusy: nothing.
  virtual Status apply() { return Status::busy(); }
  // A worker is gone without a farewell. An error ends the server.
  virtual Status lose(Worker& worker, Status why) = 0;
  // Whether a worker's next messages are to be taken now.
  virtual bool may_take(const Worker&) const { return true; }
  // Where a worker's answer comes from.
  virtual Result<transport::LocalSlice> answer_for(const Worker&) { return whole_share(); }

  ModelRange range() const { return range_; }
  const Pieces& pieces() const { return pieces_; }
  // Where a piece lies in the share.
  std::size_t offset_of(ModelRange piece) const { return piece.first - range_.first; }
  std::deque<Worker>& workers();
  bool is_any_active() const;
  // Of the parameters, which must be complete.
  Status step(std::span<const float> gradient, float learning_rate);
  void answer(Worker& worker, bool is_stopped);

 private:
  struct Wire final : transport::Retired {
    std::unique_ptr<transport::LocalRegion> parameters;
    std::unique_ptr<transport::SlotExchange> exchange;
    std::deque<Worker> workers;  // a deque, as completions don't move
    bool is_done() const override;
  };

  Result<transport::LocalSlice> whole_share() const {
    return slice_of(*wire_->parameters, {0, range_.count});
  }
  Status take(Worker& worker);
  // The worker whose initial parameters count; null: none is left.
  const Worker* giver() const;
  Status take_initial(Worker& worker, std::size_t piece, const transport::Message& message);
  Status post_answer(Worker& worker);
  static Status check_receipts(Worker& worker, Status sent);
  Status advance_worker(Worker& worker);
  Status look_for_workers();

  const ParameterRoles roles_;
  const ModelRange range_;
  const Pieces pieces_;
  Sgd sgd_;
  bool has_parameters_ = false;  // the giver has given all of them
  std::unique_ptr<Wire> wire_;
  PeerNews news_;
};

}  // namespace dunlin::training
