// The sending end of a lane over TCP.
//
// Operations are in a ring of fixed size from their posting until the peer has acknowledged them.
// They are sent in posting order, over one connection, which the lane makes itself, or which the
// peer's lane has made and this one joins. When it is lost, the lane goes on over another one: it
// learns from the peer which message was the last that it has carried out, and sends the later ones
// again. README.md says why that keeps the contract of transports/lane.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transports/lane.h"
#include "transports/tcp/connection.h"
#include "transports/tcp/dialer.h"
#include "transports/tcp/engine.h"
#include "transports/tcp/kept_bytes.h"
#include "transports/tcp/socket.h"
#include "transports/tcp/wire.h"

namespace dunlin::transport::tcp {

// One posted operation. Each operation except a local flush has a message. Its number is the
// operation's position in the ring, plus 1.
struct Operation {
  Completion* completion = nullptr;
  Status outcome;
  MessageHeader header{};
  std::byte inline_data[kInlineBytes];
  const std::byte* payload = nullptr;  // the caller's bytes, or their copy
  std::byte* into = nullptr;           // of a get: where the next bytes go
  std::uint64_t unread = 0;            // of a get: bytes that have not arrived
  std::uint64_t kept_up_to = 0;        // the mark of the kept bytes behind this operation's
  bool is_local_flush = false;
  bool is_free_when_sent = false;  // uses no memory of the caller after that
  bool is_done = false;            // the completion has fired
};

class TcpLane final : public Lane,
                      private RemoteReads,
                      private Connection::Sender,
                      private Dialer::User {
 public:
  // `endpoints` are those of the address that can be tried; not empty.
  TcpLane(Engine& engine, const Link& link, Peer& peer, LaneKind kind, const Address& address,
          std::vector<Endpoint> endpoints);
  ~TcpLane() override;

  Status put(LocalSlice from, RemoteSlice to, Completion* completion) override;
  Status put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                    Completion* completion) override;
  Status notify(const Notification& notification, Completion* completion) override;
  Status flush(Visibility visibility, Completion* completion) override;
  RemoteReads* reads() override { return this; }
  Status get(RemoteSlice from, LocalSlice to, Completion* completion) override;
  Status failure() const override { return failure_; }
  bool is_idle() const override { return is_empty(); }
  std::size_t progress() override;
  void close() noexcept override;

  // The rest is for the engine. Ends the lane with an error if the peer is gone.
  void check_peer();
  // Returns true while the lane is connecting, because step() must be called often then.
  bool step(TimePoint now);
  // This process has accepted a connection of that rank's lane.
  void on_accepted(Rank source, LaneKind kind);

 private:
  bool is_empty() const { return head_ == tail_; }
  Operation& at(std::uint64_t position) { return ring_[position % depth_]; }
  Status check_open() const;
  Status check_slices(const LocalSlice& local, const RemoteSlice& remote) const;

  // lane.cc: posting. Returns the next free place in the ring. If the ring is full, or the peer has
  // not welcomed the lane yet, counts that and returns null.
  Operation* claim(MessageKind kind, Completion* completion);
  void attach_bytes(Operation& operation, const LocalSlice& from, const RemoteSlice& to);
  void attach_notification(Operation& operation, const Notification& notification);
  Status launch();
  void fail(const Status& why);

  // sending.cc: the connection and its messages.
  void connect(Duration timeout, bool counts_silence_only, Duration delay);
  bool may_join() const;
  void join(std::shared_ptr<Connection> connection);
  void leave();
  void on_connected(Fd socket, const SessionKeys& keys) override;
  void on_unreachable(const Status& why) override;
  void on_lost(const Status& why) override;
  Duration renew_timeout() const;
  bool append_messages() override;
  void on_written() override;
  bool append_join();
  bool needs_sending(const Operation& operation, std::uint64_t order) const;
  bool append(Operation& operation, std::uint64_t order);
  void note_sent();

  // answers.cc: what the peer answers.
  Status on_answer(const Answer& answer) override;
  Status on_acknowledged(std::uint64_t order);
  Status on_read(const Answer& answer);
  void on_rejected(const AnswerHeader& header);
  Operation* find(std::uint64_t order);
  void complete(Operation& operation);
  void settle();

  Engine& engine_;
  const Link& link_;
  Peer& peer_;
  const LaneKind kind_;
  const std::uint64_t peer_cells_;
  PeerCounters& counters_;
  std::unique_ptr<Operation[]> ring_;
  const std::uint64_t depth_;
  // Positions in the ring, which only grow: head_ <= sent_ <= unsent_ <= tail_, and
  // head_ <= undone_ <= tail_.
  std::uint64_t head_ = 0;
  std::uint64_t sent_ = 0;    // up to here, messages are wholly in the socket
  std::uint64_t unsent_ = 0;  // from here on, messages are to be sent
  std::uint64_t undone_ = 0;  // the first operation whose completion has not fired
  std::uint64_t tail_ = 0;
  std::uint64_t appended_ = 0;        // number of the last message that was ever given to a socket
  std::uint64_t acknowledged_ = 0;    // number of the last message that the peer has confirmed
  std::uint64_t carried_before_ = 0;  // the same when this connection began: not sent over it
  KeptBytes kept_;
  Origin origin_;
  Dialer dialer_;
  std::shared_ptr<Connection> connection_;  // null: none
  // What happens on a connection, in this order: kJoin is sent, if the peer has made it; the peer
  // begins to answer this lane; its first acknowledgment says where to go on.
  bool is_join_due_ = false;
  bool has_begun_ = false;
  bool is_welcome_ = false;
  bool was_welcome_ = false;  // it has done so before, over any connection
  bool is_closed_ = false;
  PathWatch path_{kSilentPathTimeout, kPathCheckInterval};
  // If a connection is lost before it has made any progress, it is renewed after a delay only, and
  // not forever.
  bool has_progressed_ = true;  // since the last connection was lost
  TimePoint stuck_since_{};
  Duration renew_delay_{};
  Status failure_;    // why the lane has ended; ok if it has not
  Status rejection_;  // of a put whose completion had fired; reported by the next remote flush
  std::uint64_t completed_ = 0;
};

}  // namespace dunlin::transport::tcp
