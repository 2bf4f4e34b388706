// Outbound: the sending end of one lane, or of one rail. It turns operations into work requests of
// an RC queue pair.
//
// Operations keep their posting order, and the queue pair keeps it, too: a WRITE and the
// notification behind it (a WRITE_WITH_IMM) are carried out in order at the receiver, and the
// completion of the latter shows there all bytes before it. Operations wait while the send queue or
// the peer's mailbox is full, while rails carry a large put before them, and while the connection
// is made again. A lane's user is told that the lane is busy until it is connected for its first
// use.
//
// Four classes share the work: SendRing holds the operations, SendWindow does the flow control,
// SenderConnection makes the connection, and reestablishes it when it was lost, and LandingWatch
// waits for GPU memory at the peer. Outbound posts work requests and dispatches what comes back. A
// queue pair that has hung is a connection that was lost.
//
// When a connection is reestablished, the receiver closes its end of the old one first, and then
// tells how many notifications it has taken. Operations that have arrived by that count complete.
// The others are carried out again: the same bytes go to the same places, which the peer does not
// read before the notifications that announce them.
//
// A large put of a lane with rails (rails/rails.h) waits in the ring until the rails have carried
// its bytes, and the operations behind it wait, too. The rails already carry the large puts among
// them.
//
// While a lane needs no connection, it may be at rest: it has neither a queue pair nor memory for
// operations, and gets both when it is used (wake()). If there are more connections than there
// should be, the engine asks those to rest that were not used for the longest time. A lane that is
// asked waits until everything it has posted is done, as long as nothing new is posted.
//
// The engine makes the Outbounds of lanes, which last as long as the engine; a lane's Outbound
// makes those of its rails. Owner thread only. posting.h defines the functions that are declared
// inline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"
#include "transports/lane.h"
#include "transports/verbs/connect/connection_share.h"
#include "transports/verbs/connect/wire.h"
#include "transports/verbs/path/completion_watch.h"
#include "transports/verbs/path/landing_watch.h"
#include "transports/verbs/path/operation.h"
#include "transports/verbs/path/send_ring.h"
#include "transports/verbs/path/send_window.h"
#include "transports/verbs/path/sender_connection.h"

namespace dunlin::transport::verbs {

class Engine;
class Port;
class Rails;
struct StripedPut;

class Outbound final : public SenderConnection::Owner {
 public:
  // `rail`: 0 for a lane itself, otherwise the number of the rail that carries stripes for it.
  Outbound(Engine& engine, Port& port, Rank peer, LaneKind kind, std::uint8_t rail);
  ~Outbound() override;

  // Blocks until a route was found; kUnavailable if there is none. Then the connection is made
  // during progress, or, if there are no places for the lanes to all peers, it is at rest.
  Status connect(const Address& address);
  // If it is at rest: makes room for operations, and connects. There is no room otherwise.
  Status wake();

  // Why this end is over; ok while it is not.
  const Status& failure() const { return connection_.failure(); }
  bool is_empty() const { return ring_.is_empty(); }
  bool has_room(std::uint64_t operations) const { return ring_.has_room(operations); }
  // Whether it takes operations of the lane's user. The first ones are taken only while it is
  // connected: otherwise they would wait for this process's progress, and the user may make none
  // for long once they are taken. Later ones wait for a connection that is made again. The first
  // true answer counts as the first use.
  bool takes(std::uint64_t operations) {
    if (!has_room(operations) || !(was_used_ || connection_.is_connected())) return false;
    was_used_ = true;
    return true;
  }
  std::uint64_t completed() const { return ring_.completed(); }
  // The scope of the peer's device; nothing unless both devices have atomics.
  std::optional<AtomicScope> atomics() const;
  // The device of its port.
  const ibv_context* device() const;

  // The operations of a lane. There must be room for one operation, or for two where stated.
  inline void put(const Transfer& transfer, Completion* completion);
  inline void put_notify(const Transfer& transfer, const Notification& notification,
                         Completion* completion);
  inline void notify(const Notification& notification, Completion* completion);
  // Posts a put to a region whose owner wants landing notes.
  void put_with_landing(const Transfer& transfer, const Landing& landing, Completion* completion);
  // Does the same with a notification; takes room for two operations.
  void put_notify_with_landing(const Transfer& transfer, const Landing& landing,
                               const Notification& notification, Completion* completion);
  // Posts a put whose bytes the rails carry. `notification` may be null; otherwise it follows the
  // bytes.
  void put_striped(StripedPut& put, const Notification* notification, Completion* completion);
  // Posts a READ of one byte, for the sake of writes before it (send_ring.h).
  void read_back(std::uint64_t remote, std::uint32_t remote_key);
  void flush_local(Completion* completion);
  void flush_remote(Completion* completion);
  void get(const Transfer& transfer, const Sink& sink, Completion* completion);
  void atomic(const char* name, const AtomicAccess& access, Completion* completion);

  // If this is a rail: posts a WRITE and a READ behind it; takes room for two operations. `landed`
  // fires when the bytes are in the peer's memory.
  void carry(const Transfer& transfer, Completion& landed);

  // Gives this lane rails; null leaves it without. put_striped() needs them.
  void set_rails(std::unique_ptr<Rails> rails);
  Rails* rails() { return rails_.get(); }
  // Continues with what the rails have carried. Returns how many puts that were.
  std::size_t take_stripes();
  // Sends a message of the transport itself, once there is room for it. A lane at rest stays so.
  void send_service(std::uint32_t immediate, std::uint64_t number);
  bool has_waiting_services() const { return !services_.empty(); }

  // For ConnectionShare:
  bool begin_to_leave();
  bool is_leaving() const { return is_leaving_; }
  std::uint64_t last_use() const { return last_use_; }
  // There is a place for its connection.
  void start() { connection_.start(); }

  // Ends this end; pending operations complete with `why`.
  void fail(Status why) { connection_.fail(std::move(why)); }
  // Waits shortly for pending operations to complete, and then ends those that are left with `why`.
  void shut(Status why);
  // Reads the landed count again, and connects again, when it is time. Call it now and then.
  void step(TimePoint now);
  // Finds out whether a connection that should be busy is still alive, at both ends. Call it now
  // and then.
  void probe(TimePoint now);

  // The port and the session call these two:
  void on_event(const Event& event) override { connection_.on_event(event); }
  void on_completion(const ibv_wc& completion) override;
  // The connection calls these:
  Status settle(const Answer& answer) override;
  void go_on() override;
  void pause() override;
  void end(const Status& why) override;
  bool take_place() override;
  void wait_for_place() override;
  void leave_place() override;
  std::uint64_t operations_completed() const override { return ring_.completed(); }

 private:
  struct Chain;

  Status allocate();
  // Posts what can be posted.
  inline void pump();
  // Adds the operation's next work request to the chain. False: it has to wait.
  inline bool add_request(Chain& chain, Operation& operation, std::uint64_t position);
  inline void add_bytes(Chain& chain, Operation& operation);
  inline void aim(ibv_send_wr& request, const Operation& operation) const;
  inline void add_notification(Chain& chain, Operation& operation, std::uint64_t position);
  inline Status post(Chain& chain);
  // Posts a signaled work request that belongs to no operation.
  void post_extra(Chain& chain);
  // Work requests up to this number are done.
  void complete_up_to(std::uint64_t request);
  void on_failed_request(const ibv_wc& completion);
  void lose(Status why);
  // Rests if nothing is in progress.
  void go_on_leaving();
  void send_waiting_services();
  // Appends a signaled work request, so that the end of everything before it will be seen.
  void append_fence();
  void look_for_hang(TimePoint now);
  // The most bytes that the device moves before the next completion.
  std::uint64_t bytes_to_completion() const;
  // Whether a flush may complete as far as landing notes are concerned. True for other operations.
  inline bool has_landed(const Operation& operation) const;
  inline void update_landing_wait();
  void poll_landings(TimePoint now);

  Engine& engine_;
  Port& port_;
  const Rank peer_;
  const std::uint8_t rail_;
  SendRing ring_;
  SendWindow window_;
  CompletionWatch watch_;
  // Hangs in a row without a completion. Each doubles the time for bytes, because the operation
  // begins anew, and would never end on a network that is slower than expected.
  std::uint32_t hangs_ = 0;
  std::uint64_t completed_before_hang_ = 0;
  LandingWatch landings_;
  SenderConnection connection_;
  std::unique_ptr<Rails> rails_;                                   // null without rails
  std::vector<std::pair<std::uint32_t, std::uint64_t>> services_;  // that wait for room
  // The position in the ring of the last message that told the peer of a connection.
  std::uint64_t told_at_ = UINT64_MAX;
  ConnectionShare<Outbound>& share_;
  std::uint64_t last_use_ = 0;
  bool was_used_ = false;         // by the lane's user
  TimePoint unused_until_{};      // when a connection that is for the first use may be given up
  bool is_leaving_ = false;       // to rest as soon as it can
  bool is_asked_ = false;         // by the peer: use is no reason to stay
  std::uint64_t leaving_at_ = 0;  // tail of the ring when it began to leave
};

}  // namespace dunlin::transport::verbs
