// The lane of the sim transport, under fabrics and nodes alike.
//
// Operations of a lane land in the order in which they were posted, or, on a hostile network, in
// any that the contract allows. Each is one Operation in the network's pool, linked into the lane's
// list until its completion has fired.
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
  // Takes the operation out and fires its completion with its own outcome, or, where it is not
  // done, with `pending`.
  void settle(OperationId id, Status pending);
  // Finishes the oldest local flush if everything before it is done.
  void finish_flush();
  // All operations, as settle().
  template <typename Pending>
  std::size_t settle_all(Pending&& pending);
  // The peer is gone.
  std::size_t fail_pending();

  Endpoint& endpoint_;
  const Link& link_;
  const LaneKind kind_;
  const Route route_;
  bool is_closed_ = false;
  bool was_refused_ = false;   // and its owner waits for room
  std::uint32_t count_ = 0;    // operations in the list
  std::uint32_t flushes_ = 0;  // local ones among them that wait
  OperationId first_ = kNoOperation;
  OperationId last_ = kNoOperation;
  TimePoint last_head_{};     // when the first byte of what was posted last is at the receiver
  TimePoint last_landing_{};  // of everything so far
  SimLane* previous_lane_ = nullptr;  // in the endpoint's list
  SimLane* next_lane_ = nullptr;
};

}  // namespace dunlin::transport::sim
