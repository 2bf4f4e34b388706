// Outbound: the sending end of one lane: an RC queue pair and the ring of operations that wait for
// it or are on the wire.
//
// Operations keep their posting order, which the queue pair keeps, too: a WRITE and the
// notification behind it (WRITE_WITH_IMM of a Record into the receiver's mailbox) execute in order
// at the receiver, and the completion that the latter makes there shows all bytes before it. They
// wait in the ring until the connection is made, while the send queue is full, and while the
// mailbox is.
//
// A connection that is lost while the peer lives is made again. The receiver, which has closed its
// end of the old one before it answers, tells how many records it has taken; what is known by that
// to have arrived completes, and everything behind it is carried out again: the same bytes to the
// same places, which nobody reads before the records that announce them.
//
// A large put of a lane with rails (rails.h) waits in the lane's ring until the rails have carried
// its bytes, and what is behind it waits, too. Large puts behind it are with the rails meanwhile.
//
// Made by the engine, lasts as long as it; rails by their lane's. Owner thread only. What is
// declared inline, and Chain, stand in posting.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/rank.h"
#include "transports/lane.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/endpoint.h"
#include "transports/verbs/handle.h"
#include "transports/verbs/session.h"
#include "transports/verbs/wire.h"

namespace dunlin::transport::verbs {

class Engine;
class GpuMemory;
class Port;
class Rails;
struct StripedPut;

enum class Action : std::uint8_t { kWrite, kFlush, kRead, kFetchAdd, kCompareSwap };

// One posted operation: bytes to move, a notification behind them (or with the last of them), or
// both.
struct Operation {
  Completion* completion = nullptr;
  const char* name = "";
  Action action = Action::kWrite;
  bool moves_bytes = false;  // by one work request at least
  bool notifies = false;     // its record stands at the ring's position, used or not
  bool is_short = false;     // the notification: one request for the bytes and it
  bool is_signaled = false;  // somebody waits for the end
  bool is_done = false;
  bool is_on_gpu = false;       // the local end, which no CPU may read
  bool awaits_stripes = false;  // its bytes are with the rails, and so long nothing is posted
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint64_t size = 0;
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t* before = nullptr;  // where an atomic tells the former value, or null
  std::uint64_t operand = 0;        // to add, or to compare with
  std::uint64_t desired = 0;        // to swap in
  std::uint32_t cell = 0;           // of the notification, or a service
  std::uint32_t immediate = 0;      // of the notification, if it is short
  bool is_tied = false;             // if it is refused, the next one falls with it
  GpuMemory* sink = nullptr;        // that a get's bytes are still to be delivered to
  std::uint64_t sink_offset = 0;
  std::uint64_t awaited = 0;  // of a flush: number of the last landing note before it

  // How far the present queue pair has taken it.
  bool has_bytes_left = false;
  bool has_record_left = false;    // a notification, short or not
  std::uint64_t posted = 0;        // bytes
  std::uint64_t record = 0;        // number of its notification; 0: not posted
  std::uint64_t last_request = 0;  // number of its last work request; 0: not all are posted

  // Reads back from the peer, so that all bytes before it are in its memory.
  void attach_flush();
  // Nothing of it is posted (any more).
  inline void rewind();
  bool is_atomic() const { return action == Action::kFetchAdd || action == Action::kCompareSwap; }
};

class Outbound final : public Endpoint {
 public:
  // `rail`: 0 for a lane itself, else of the queue pairs that carry stripes for it.
  Outbound(Engine& engine, Port& port, Rank peer, LaneKind kind, std::uint8_t rail);
  ~Outbound() override;

  // Begins to connect, and returns when a route was found, or none (kUnavailable); the rest follows
  // by itself.
  Status connect(const Address& address);

  // Not ok: over, and why.
  const Status& failure() const { return failure_; }
  bool is_empty() const { return head_ == tail_; }
  bool has_room(std::uint64_t operations) const { return tail_ - head_ + operations <= depth_; }
  std::uint64_t completed() const { return completed_; }
  // Of the peer's device, if both have atomics.
  std::optional<AtomicScope> atomics() const;

  // Of its port.
  const ibv_context* device() const;

  // A free place in the ring, to be filled in and launched; null: full.
  Operation* claim() {
    if (tail_ - head_ == depth_) return nullptr;
    Operation& operation = at(tail_);
    operation = Operation{};
    return &operation;
  }
  // Has the claimed operation notify, behind its bytes if it has any.
  inline void announce(Operation& operation, const Notification& notification);
  // Has the claimed put tell the owner of the region that it has landed.
  void announce(Operation& operation, const Landing& landing);
  // Has the claimed atomic bring the former value into its place in the ring.
  void receive_former(Operation& operation);
  inline void launch();
  // launch(), but posted with the next one.
  inline void append();

  // From here on, launch_striped() can be called. Null: not.
  void set_rails(std::unique_ptr<Rails> rails);
  Rails* rails() { return rails_.get(); }
  // Launches the claimed operation, the bytes of which the rails carry; what it announces goes out
  // behind them.
  void launch_striped(Operation& operation, StripedPut& put);
  // Goes on with what the rails have carried; returns how many puts that were.
  std::size_t take_stripes();
  // A message of the transport itself; waits for a place.
  void send_service(std::uint32_t immediate, std::uint64_t number);

  // Over: what is pending ends with `why`.
  void fail(Status why);
  // Ends what is pending: by itself if it does soon, with `why` if not.
  void shut(Status why);
  // To be called now and then: connects again when it is time to.
  void step(TimePoint now);
  // To be called now and then: finds out whether a connection that should be busy still is one.
  void probe();

  void on_event(const Event& event) override;
  void on_completion(const ibv_wc& completion) override;

 private:
  enum class State : std::uint8_t { kIdle, kConnecting, kConnected, kLost, kOver };
  struct Chain;

  std::string name() const;  // "data", "rail 2"
  // What belongs to a position in the ring.
  Operation& at(std::uint64_t position) { return ring_[position & mask_]; }
  Record& record_at(std::uint64_t position) { return records_[position & mask_]; }
  // What a flush brings back, behind the records.
  std::uint64_t* landed() const { return reinterpret_cast<std::uint64_t*>(records_ + mask_ + 1); }
  Status allocate();
  Status begin();
  ibv_qp_cap room() const;
  Status make_queue_pair();
  Status request_connection();
  Status establish(const Event& event);
  void resume();
  // What a connection that is no more left of the operation: carried out and known to be
  // (`has_arrived`), carried out perhaps, or to be carried out anew.
  void settle(Operation& operation, bool has_arrived);
  void set_state(State state);
  // The connection is gone; the lane goes on if the peer lives.
  void lose(Status why);
  void drop_connection();

  // Posts what can be posted.
  inline void pump();
  // Adds the operation's next work request; false: it has to wait.
  inline bool add_request(Chain& chain, Operation& operation, std::uint64_t position);
  inline void add_bytes(Chain& chain, Operation& operation);
  inline void aim(ibv_send_wr& request, const Operation& operation) const;
  inline void add_notification(Chain& chain, Operation& operation, std::uint64_t position);
  inline Status post(Chain& chain);
  void on_failed_request(const ibv_wc& completion);
  void retire(std::uint64_t request);
  void send_waiting_services();
  void finish(Operation& operation, const Status& status);
  // No short forms for what waits: the notification that they would go on from does not arrive.
  void spell_out();
  // Not so for a flush whose landing notes the peer has not carried out yet.
  inline bool has_landed(const Operation& operation) const;
  // Whether the flush at the head waits for nothing but those.
  inline void note_landings();
  // It does from here on, or no longer.
  void await_landings(bool awaits);
  // Looks again, now and then, whether it can end.
  void look_for_landings(TimePoint now);
  // Something signalled is behind everything posted so far, so that its end will be seen.
  void post_fence();

  Engine& engine_;
  Port& port_;
  const Rank peer_;
  const LaneKind kind_;
  const std::uint8_t rail_;
  Address address_;
  std::unique_ptr<Rails> rails_;  // null: without
  std::unique_ptr<Session> session_;
  std::shared_ptr<MemoryRegion>
      memory_;  // records (or results) by place in the ring, scratch of flushes
  std::unique_ptr<MemoryKey> key_;
  Record* records_ = nullptr;
  std::unique_ptr<Operation[]> ring_;
  const std::uint64_t depth_;
  // The ring has a power of two of places, depth_ or more: no division finds them.
  const std::uint64_t mask_;
  Answer answer_{};
  std::uint32_t inline_limit_ = 0;
  std::uint32_t signal_every_ = 1;  // work requests
  State state_ = State::kIdle;
  bool has_route_ = false;
  bool was_connected_ = false;
  Status failure_;
  Status refusal_;  // of a put that nobody asked about, for the next flush
  // While the connection is lost.
  Status loss_;
  TimePoint lost_at_{};
  int fruitless_ = 0;  // connections in a row that completed nothing
  std::uint64_t completed_before_ = 0;
  TimePoint next_step_{};
  Duration patience_ = kFirstAttempt;  // with an attempt to connect again
  // Positions in the ring, ever growing: head_ <= unposted_ <= tail_.
  std::uint64_t head_ = 0;
  std::uint64_t unposted_ = 0;
  std::uint64_t tail_ = 0;
  // Numbers of work requests.
  std::uint64_t requested_ = 0;
  std::uint64_t returned_ = 0;  // up to which the queue pair has given them back
  std::uint64_t last_signaled_ = 0;
  std::uint64_t notified_ = 0;  // notifications sent, short or not
  std::uint64_t arrived_ = 0;   // of these, whose requests have completed
  std::uint64_t taken_ = 0;     // of these, by the peer out of its mailbox
  std::uint64_t landing_ = 0;   // number of the last landing note
  std::uint64_t look_ = 0;      // work request of the last look for landings
  bool awaits_landings_ = false;
  TimePoint next_look_{};
  std::uint64_t completed_ = 0;
  std::vector<std::uint64_t> sequences_;  // by cell, of the last notification that was launched
  std::vector<std::pair<std::uint32_t, std::uint64_t>> services_;  // that wait for a place
};

}  // namespace dunlin::transport::verbs
