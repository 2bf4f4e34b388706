// StochasticReduce: each rank averages its model with those of its in-neighbours in a node graph
// (ASAP, section 3), in one of three ways of synchronising (section 4):
//
//   NOTIFY-ACK  a reduce waits for one model from every in-neighbour, and for nobody else; models
//   of
//               the same step meet, none is torn, none is lost.
//   BSP         puts without flow control, a barrier of all members, then whatever is consistent.
//   ASYNC       puts without flow control, no waiting, whatever is consistent and new.
//
// In a reduce the model goes out to all out-neighbours before anything is waited for, so that
// cyclic graphs can't deadlock; then model = self_weight * model + sum of weight[j] * input[j], in
// one pass over all inputs, straight from the receive slots in NOTIFY-ACK. In the weaker modes
// missing inputs leave the sum, and the remaining weights are scaled to add up to one.
//
// A state machine under start() and test(), with reduce() as the blocking edge. The model lives in
// registered memory of this object; it is the caller's between reduces. After an error (a member
// died, the deadline passed) the model holds its contents from before the reduce (from after it,
// where only an ACK was still to be posted), and the object can only be destroyed: rebuild over the
// survivors. Destroy it when all members are done with theirs (a barrier of the bootstrap):
// neighbours may still write or acknowledge until then. Nothing allocates between connect() and the
// end. Owner thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/barrier.h"
#include "collectives/member_watch.h"
#include "collectives/neighborhood.h"
#include "transports/channel/queue.h"
#include "transports/channel/slot_exchange.h"
#include "transports/channel/versioned.h"
#include "transports/fabric.h"

namespace dunlin::collective {

enum class SyncMode : std::uint8_t { kNotifyAck, kBsp, kAsync };
const char* to_string(SyncMode mode);
Result<SyncMode> parse_sync_mode(std::string_view name);  // "notify-ack", "bsp", "async"

struct ReduceOptions {
  std::string name = "model";  // distinguishes reduces of one job; the same on all ranks
  Membership membership;       // who takes part
  Neighborhood neighborhood;
  std::size_t count = 0;  // elements of the model
  SyncMode mode = SyncMode::kNotifyAck;
  std::uint32_t depth = 2;  // receive slots per in-neighbour
};

// What one reduce did.
struct ReduceReport {
  std::uint64_t step = 0;    // 1, 2, ...
  std::uint32_t inputs = 0;  // in-neighbours' models that were averaged in
  std::uint32_t torn = 0;    // left out: overwritten while being read
  std::uint32_t stale = 0;   // left out: nothing new had come
  std::uint64_t bytes_sent = 0;
  Duration waited{};  // from the end of sending to the last input
};

template <typename T>  // float, double
class StochasticReduce {
 public:
  // In two steps, as SlotExchange.
  static Result<std::unique_ptr<StochasticReduce>> prepare(transport::Fabric& fabric,
                                                           ReduceOptions options);
  Status connect();
  ~StochasticReduce();
  StochasticReduce(const StochasticReduce&) = delete;
  StochasticReduce& operator=(const StochasticReduce&) = delete;

  std::span<T> model() { return model_; }

  // Begins a reduce of the model's present contents, which must not be touched until it is done.
  Status start();
  // kBusy until the reduce is done; the caller progresses the fabric in between and looks to the
  // members' life (PeerTable).
  Status test();
  const ReduceReport& report() const { return report_; }
  // Who is waited for at this moment, and for what.
  std::vector<transport::Awaited> awaited() const;

  // start(), then test() until done. Errors as Fabric::wait; kPeerDead also when a member that
  // isn't a neighbour dies, since the group has to be rebuilt then.
  Result<ReduceReport> reduce(Duration timeout);

 private:
  enum class Phase : std::uint8_t { kIdle, kSend, kLocal, kBarrier, kReceive, kAcknowledge };
  struct Wire;

  StochasticReduce(transport::Fabric& fabric, ReduceOptions options)
      : fabric_(fabric),
        options_(std::move(options)),
        watch_(fabric, options_.membership.members) {}
  Status allocate();
  bool is_versioned() const { return options_.mode != SyncMode::kNotifyAck; }
  Status send();
  Status send_to(std::size_t edge);
  Status receive();
  Status average_messages();
  void average_versioned();
  Status acknowledge();
  void finish();

  transport::Fabric& fabric_;
  ReduceOptions options_;
  MemberWatch watch_;
  std::unique_ptr<Wire> wire_;
  std::span<std::byte> framed_;
  std::span<T> model_;
  transport::LocalSlice payload_;  // what is sent: the model, or all of framed_

  std::vector<transport::SendQueue> senders_;  // NOTIFY-ACK
  std::vector<transport::ReceiveQueue> receivers_;
  std::vector<transport::VersionedWriter> writers_;  // BSP, ASYNC
  std::vector<transport::VersionedReader> readers_;
  std::vector<std::vector<T>> copies_;  // of the slots that were read
  std::unique_ptr<Barrier> barrier_;    // BSP

  Phase phase_ = Phase::kIdle;
  std::vector<const T*> inputs_;
  std::vector<T> weights_;
  TimePoint sent_at_{};
  TimePoint began_{};
  ReduceReport report_;
};

extern template class StochasticReduce<float>;
extern template class StochasticReduce<double>;

}  // namespace dunlin::collective
