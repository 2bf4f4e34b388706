// The sending end of a lane over UCX.
//
// Operations are in a ring of fixed size from their posting until UCX has finished with them. If
// RMA is used for an operation, its bytes are put at once. Messages (other bytes, notifications,
// flush requests) are sent strictly in posting order, and a message that follows RMA puts is sent
// only after these have been flushed. README.md says why that keeps the contract of
// transports/lane.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transports/lane.h"
#include "transports/ucx/connection.h"
#include "transports/ucx/region.h"
#include "transports/ucx/wire.h"

namespace dunlin::transport::ucx {

class UcxLane;

// One posted operation. It is not part of its lane, because UCX may call back after the lane is
// gone.
struct Operation {
  UcxLane* lane = nullptr;  // null once the lane is gone
  Path* path = nullptr;     // outlives the lane
  Completion* completion = nullptr;
  Status outcome;
  const UcxRegion* source = nullptr;   // the region of the bytes that UCX holds
  MappedMemory kept;                   // the same memory, kept alive once the region may go
  const std::byte* payload = nullptr;  // of the message
  std::size_t payload_size = 0;
  bool may_be_fetched = false;  // the payload, by the receiver
  bool has_message = false;
  bool is_local_flush = false;
  bool is_remote_flush = false;
  bool is_flushing = false;  // the puts before it are being flushed
  bool is_sent = false;      // its message was sent, or it has none
  bool awaits_answer = false;
  bool is_done = false;
  int requests = 0;  // that UCX has not finished
  MessageHeader header{};
  std::byte* into = nullptr;  // of a get: where the next bytes go
  std::size_t unread = 0;     // of a get: bytes that have not arrived
};

class UcxLane final : public Lane, private RemoteReads {
 public:
  UcxLane(Engine& engine, const Link& link, Connection& connection, LaneKind kind);
  ~UcxLane() override;

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  Status notify(const Notification& notification, Completion* completion) override;
  Status flush(Visibility visibility, Completion* completion) override;
  RemoteReads* reads() override { return this; }
  Status get(RemoteSlice from, LocalSlice to, Completion* completion) override;
  Status failure() const override;
  bool is_idle() const override { return is_empty(); }
  std::size_t progress() override;
  void close() noexcept override;

  // The rest is for the connection. The path has ended: operations that UCX does not hold any more
  // fail.
  void abort();
  // The peer has answered the flush with this number.
  void on_flush_answered(std::uint64_t order);
  // The peer has sent the bytes that the message with this number asked for.
  void on_read(std::uint64_t order, std::span<const std::byte> bytes);
  // The peer has refused the message with this number.
  void on_rejected(std::uint64_t order, Code code, std::uint64_t region);
  std::uint64_t completed() const { return completed_; }

 private:
  bool is_empty() const { return head_ == tail_; }
  Operation& at(std::uint64_t position) { return ring_[position % depth_]; }
  Status check_open() const;
  Status check_slices(const LocalSlice& local, const RemoteSlice& remote) const;
  bool goes_by_rma(const RemoteSlice& to) const;

  // The next free place in the ring. If the ring is full, counts that and returns null.
  Operation* claim(Completion* completion);
  // Puts the bytes of an operation by RMA now, or has them sent with its message.
  void attach_bytes(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void attach_message(Operation& operation, MessageKind kind);
  Status launch(Operation& operation);

  void start_rma(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void start_flush(Operation& operation);
  void send_in_turn();
  void send(Operation& operation);
  void read_on(Operation& operation);
  void transmit(Operation& operation);
  // Notes the request or status that a UCX call returned.
  void track(Operation& operation, ucs_status_ptr_t request);
  Status failure_of(const Operation& operation, ucs_status_t status) const;
  void finish_if_done(Operation& operation);
  void complete(Operation& operation);
  void pop_done();
  void release_ring();

  static void on_request(void* request, ucs_status_t status, void* operation);
  static void on_flushed(void* request, ucs_status_t status, void* operation);
  static void on_finished(void* request, ucs_status_t status, Operation& operation);

  Engine& engine_;
  const Link& link_;
  Connection& connection_;
  Path& path_;
  LaneKind kind_;
  PeerCounters& counters_;
  std::unique_ptr<Operation[]> ring_;
  std::uint64_t depth_;
  // Positions in the ring, which only grow: head_ <= unsent_ <= tail_.
  std::uint64_t head_ = 0;
  std::uint64_t unsent_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t last_put_ = 0;  // number of the last message that carried bytes or a notification
  std::uint64_t visible_up_to_ = 0;  // number of the last message that the peer has confirmed
  bool has_unflushed_rma_ = false;
  bool is_closed_ = false;
  bool is_sending_ = false;
  Status rejection_;  // of a put whose completion had fired; reported by the next remote flush
  std::uint64_t completed_ = 0;
};

}  // namespace dunlin::transport::ucx
