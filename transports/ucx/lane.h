// The sending end of a lane over UCX.
//
// Operations stand in a ring of fixed size from their posting until UCX has finished with them.
// Bytes move by RMA at once where that is used; messages (bytes that don't go by RMA,
// notifications, flush requests) go out strictly in posting order, one that follows RMA puts only
// after these have been flushed. README.md has the argument why that keeps the contract of
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

// One posted operation. Kept apart from its lane: UCX may call back after the lane is gone.
struct Operation {
  UcxLane* lane = nullptr;  // null: nobody is interested any more
  Path* path = nullptr;     // outlives the lane
  Completion* completion = nullptr;
  Status outcome;
  const UcxRegion* source = nullptr;   // of the bytes that UCX holds
  MappedMemory kept;                   // the same, once nobody else may hold it
  const std::byte* payload = nullptr;  // of the message
  std::size_t payload_size = 0;
  bool may_be_fetched = false;  // the payload, by the receiver
  bool has_message = false;
  bool is_local_flush = false;
  bool is_remote_flush = false;
  bool is_flushing = false;  // the puts before it are being flushed
  bool is_sent = false;      // its turn to send has come and gone
  bool awaits_answer = false;
  bool is_done = false;
  int requests = 0;  // that UCX has not finished
  MessageHeader header{};
  std::byte* into = nullptr;  // of a get: where the next bytes go
  std::size_t unread = 0;     // of a get: that have not come yet
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
  std::size_t progress() override;
  void close() noexcept override;

  // For the connection. The path is over: what UCX does not hold any more completes with that.
  void abort();
  // The peer has answered the flush of this number.
  void on_flush_answered(std::uint64_t order);
  // What the message of this number asked for.
  void on_read(std::uint64_t order, std::span<const std::byte> bytes);
  // The peer refused the message of this number.
  void on_rejected(std::uint64_t order, Code code, std::uint64_t region);
  std::uint64_t completed() const { return completed_; }

 private:
  bool is_empty() const { return head_ == tail_; }
  Operation& at(std::uint64_t position) { return ring_[position % depth_]; }
  Status check_open() const;
  Status check_slices(const LocalSlice& local, const RemoteSlice& remote) const;
  bool goes_by_rma(const RemoteSlice& to) const;

  // The next free place in the ring; null: full, which is counted.
  Operation* claim(Completion* completion);
  // Where the bytes of an operation go: by RMA now, or with its message.
  void attach_bytes(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void attach_message(Operation& operation, MessageKind kind);
  Status launch(Operation& operation);

  void start_rma(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void start_flush(Operation& operation);
  void send_in_turn();
  void send(Operation& operation);
  void read_on(Operation& operation);
  void transmit(Operation& operation);
  // Takes note of what a UCX call returned.
  void track(Operation& operation, ucs_status_ptr_t request);
  Status failure_of(const Operation& operation, ucs_status_t status) const;
  void finish_if_done(Operation& operation);
  void complete(Operation& operation);
  void retire();
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
  // Positions in the ring, ever growing: head_ <= unsent_ <= tail_.
  std::uint64_t head_ = 0;
  std::uint64_t unsent_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t last_put_ = 0;  // number of the last message that carried bytes or a notification
  std::uint64_t visible_up_to_ = 0;  // number up to which the peer has confirmed
  bool has_unflushed_rma_ = false;
  bool is_closed_ = false;
  bool is_sending_ = false;
  Status rejection_;  // of a put whose completion had fired; the next remote flush reports it
  std::uint64_t completed_ = 0;
};

}  // namespace dunlin::transport::ucx
