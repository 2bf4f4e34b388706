// StochasticReduce: each rank averages its model with those of its in-neighbors in a node graph
// (ASAP, section 3). There are three modes of synchronization (section 4):
//
//   NOTIFY-ACK  A reduce waits for a model from every in-neighbor, and for ACKs if `depth` models
//               are unacknowledged. Models of the same step meet; none is torn, and none is lost.
//   BSP         Puts without flow control, a barrier of all members, then whatever is consistent.
//   ASYNC       Puts without flow control and no wait; whatever is consistent and new.
//
// A reduce sends the model to all out-neighbors before it waits for a model, so cyclic graphs
// can't deadlock. Then model = self_weight * model + sum of weight[j] * input[j], in one pass over
// all inputs; NOTIFY-ACK reads them in their receive slots. In BSP and ASYNC, inputs may be
// missing; the remaining weights are scaled to add up to one.
//
// GPUs. In NOTIFY-ACK the model and the receive slots can be in the memory of a GPU: the average is
// one launch there, with the bits that it has on the CPU, and no model passes through host memory.
// model() then is memory of the GPU, which the CPU cannot access. Work on the model has to be
// complete before start(); the average is complete when test() is. BSP and ASYNC need host
// memory, since the CPU checks there whether a model was overwritten while it was read.
//
// A state machine under start() and test(); reduce() blocks. The model lies in registered memory of
// this object and is the caller's between reduces. After an error (a member died, the deadline
// passed) the model holds its contents from before the reduce, or from after it if only an ACK was
// still to be posted. The object can only be destroyed then: make another one over the survivors.
// Destroy it when all members are done with theirs (after a barrier of the bootstrap), since
// neighbors may write or acknowledge until then. Nothing is allocated between connect() and the
// end. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/barrier/barrier.h"
#include "collectives/schedule/gpu_compute.h"
#include "collectives/stochastic/neighborhood.h"
#include "collectives/waiting/background_steps.h"
#include "collectives/waiting/member_watch.h"
#include "transports/channel/queue.h"
#include "transports/channel/slot_exchange.h"
#include "transports/channel/versioned.h"
#include "transports/fabric.h"

namespace dunlin::collective {

enum class SyncMode : std::uint8_t { kNotifyAck, kBsp, kAsync };
const char* to_string(SyncMode mode);
Result<SyncMode> parse_sync_mode(std::string_view name);  // "notify-ack", "bsp", "async"

struct ReduceOptions {
  std::string name = "model";  // tells the reduces of a job apart; the same on all ranks
  Membership membership;       // the ranks that take part
  Neighborhood neighborhood;
  std::size_t count = 0;  // elements of the model
  SyncMode mode = SyncMode::kNotifyAck;
  std::uint32_t depth = 2;  // receive slots per in-neighbor
  // The GPU, by its number in this process, in whose memory the models are. Empty: host memory.
  // Either all members have a GPU or none has.
  std::optional<int> gpu{};
};

// What one reduce did.
struct ReduceReport {
  std::uint64_t step = 0;    // 1, 2, ...
  std::uint32_t inputs = 0;  // models of in-neighbors that were averaged in
  std::uint32_t torn = 0;    // models left out since they were overwritten while being read
  std::uint32_t stale = 0;   // models left out since nothing new had arrived
  std::uint64_t bytes_sent = 0;
  Duration waited{};  // from the end of sending to the last input
};

template <typename T>  // float, double
class StochasticReduce {
 public:
  // Collective over the members, in two steps as SlotExchange: prepare() on all, then connect().
  static Result<std::unique_ptr<StochasticReduce>> prepare(transport::Fabric& fabric,
                                                           ReduceOptions options);
  Status connect();
  ~StochasticReduce();
  StochasticReduce(const StochasticReduce&) = delete;
  StochasticReduce& operator=(const StochasticReduce&) = delete;

  std::span<T> model() { return model_; }

  // Begins a reduce of the model's contents, which must not be touched until test() isn't busy.
  Status start();
  // kBusy until the reduce is done. In between the caller progresses the fabric, or waits for
  // something else on it, and checks that the members are alive (PeerTable).
  Status test();
  // Ends a reduce that has failed for its caller, whose the model is from now on: nothing is
  // averaged into it any more. Only destroy the object then.
  void stop(const Status& outcome);
  const ReduceReport& report() const { return report_; }
  // The peers that this rank waits for now, and for what.
  std::vector<transport::Awaited> awaited() const;
  // The first of them, without an allocation.
  Rank blocker() const;

  // start(), then test() until it isn't busy. Returns the errors of Fabric::wait(). kPeerDead also
  // if a member dies that is no neighbor, since the group has to be made anew then.
  Result<ReduceReport> reduce(Duration timeout);

 private:
  enum class Phase : std::uint8_t {
    kIdle,
    kSend,
    kLocal,
    kBarrier,
    kReceive,
    kAverage,
    kAcknowledge
  };
  struct LaneState;

  StochasticReduce(transport::Fabric& fabric, ReduceOptions options)
      : fabric_(fabric),
        options_(std::move(options)),
        watch_(fabric, options_.membership.members),
        steps_(fabric, [this] { return step(); }) {}
  Status allocate();
  Status allocate_model();
  bool is_versioned() const { return options_.mode != SyncMode::kNotifyAck; }
  Status step();
  Status send();
  Status send_to(std::size_t edge);
  Status receive();
  Status take_messages();
  Status average_messages();
  void average_versioned();
  Status acknowledge();
  void finish();

  transport::Fabric& fabric_;
  ReduceOptions options_;
  MemberWatch watch_;
  std::shared_ptr<GpuDriver> gpu_;  // null: host memory
  std::unique_ptr<LaneState> lane_state_;
  std::span<std::byte> framed_;
  std::span<T> model_;
  transport::LocalSlice payload_;  // what is sent: the model (NOTIFY-ACK), or all of framed_

  std::vector<transport::SendQueue> senders_;  // NOTIFY-ACK
  std::vector<transport::ReceiveQueue> receivers_;
  std::vector<transport::VersionedWriter> writers_;  // BSP, ASYNC
  std::vector<transport::VersionedReader> readers_;
  std::vector<std::vector<T>> copies_;  // of the slots, by in-neighbor
  std::unique_ptr<Barrier> barrier_;    // BSP

  Phase phase_ = Phase::kIdle;
  std::vector<const T*> inputs_;
  std::vector<T> weights_;
  std::vector<const std::byte*> gpu_inputs_;
  std::unique_ptr<GpuCompute> gpu_compute_;
  TimePoint sent_at_{};
  TimePoint began_{};
  ReduceReport report_;
  BackgroundSteps steps_;
};

extern template class StochasticReduce<float>;
extern template class StochasticReduce<double>;

}  // namespace dunlin::collective
