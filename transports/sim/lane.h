// The lane of the sim transport, for fabrics and nodes alike.
//
// The operations of a lane land in the order in which they were posted, or, on a hostile network,
// in any order that the contract permits. Each is an Operation in the network's pool, and is in the
// lane's list until its completion has fired.
#pragma once

#include "transports/lane.h"
#include "transports/sim/operation.h"
#include "transports/sim/options.h"
#include "transports/transport.h"

namespace dunlin::transport::sim {

class Endpoint;
class Network;

class SimLane final : public Lane, public RemoteReads {
 public:
  SimLane(Endpoint& endpoint, const Link& link, LaneKind kind);
  ~SimLane() override;

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  Status notify(const Notification& notification, Completion* completion) override;
  Status flush(Visibility visibility, Completion* completion) override;
  RemoteReads* reads() override { return this; }
  // RemoteReads:
  Status get(RemoteSlice from, LocalSlice to, Completion* completion) override;
  bool is_idle() const override { return first_ == kNoOperation; }
  std::size_t progress() override;
  void close() noexcept override;

 private:
  friend class Network;
  friend class Endpoint;

  Rank peer() const { return link_.peer(); }
  Status check_post();
  Status check_cell(const Notification& notification) const;
  Status refuse();
  OperationId add(Completion* completion);
  void set_payload(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void set_notification(Operation& operation, const Notification& notification);
  void unlink(OperationId id);
  // Removes the operation and fires its completion: with its own outcome if it is done, otherwise
  // with `pending`.
  void settle(OperationId id, Status pending);
  // Finishes the oldest local flush if everything before it is done.
  void finish_flush();
  // Calls settle() for all operations.
  template <typename Pending>
  std::size_t settle_all(Pending&& pending);
  // Settles all operations if the peer is dead. Returns how many.
  std::size_t fail_pending();

  Endpoint& endpoint_;
  const Link& link_;
  const LaneKind kind_;
  const Route route_;
  bool is_closed_ = false;
  bool was_refused_ = false;   // the last post returned kBusy, so the owner waits for room
  std::uint32_t count_ = 0;    // operations in the list
  std::uint32_t flushes_ = 0;  // of these, local flushes that wait
  OperationId first_ = kNoOperation;
  OperationId last_ = kNoOperation;
  TimePoint last_head_{};     // when the first byte of the last operation reaches the receiver
  TimePoint last_landing_{};  // the latest time at which an operation so far lands
  SimLane* previous_lane_ = nullptr;  // in the endpoint's list
  SimLane* next_lane_ = nullptr;
};

}  // namespace dunlin::transport::sim
