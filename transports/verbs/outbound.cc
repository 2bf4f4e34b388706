#include "transports/verbs/outbound.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/constants.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/posting.h"
#include "transports/verbs/rails.h"

namespace dunlin::transport::verbs {
namespace {

// Receive work requests for returning credits: a mailbox of n slots reports every n / 2 (at least
// one), so that at most three reports can be unread at a time.
constexpr std::uint32_t kCreditReceives = 4;

}  // namespace

Outbound::Outbound(Engine& engine, Port& port, Rank peer, LaneKind kind, std::uint8_t rail)
    : engine_(engine),
      port_(port),
      peer_(peer),
      kind_(kind),
      rail_(rail),
      depth_(engine.queue_depth()),
      mask_(std::bit_ceil(depth_) - 1) {}

Outbound::~Outbound() {
  fail(Status(Code::kClosed, "the transport was closed").with_peer(peer_));
}

std::string Outbound::name() const {
  return rail_ == 0 ? to_string(kind_) : fmt::format("rail {}", rail_);
}

const ibv_context* Outbound::device() const {
  return port_.device();
}

// Connecting -------------------------------------------------------------------------------------

void Outbound::set_state(State state) {
  const auto is_restless = [](State one) {
    return one == State::kConnecting || one == State::kLost;
  };
  engine_.count_restless(static_cast<int>(is_restless(state)) -
                         static_cast<int>(is_restless(state_)));
  state_ = state;
  note_landings();
}

Status Outbound::connect(const Address& address) {
  address_ = address;
  lost_at_ = engine_.context().clock.now();
  next_step_ = lost_at_ + engine_.context().config.deadline;
  DUNLIN_TRY(allocate());
  DUNLIN_TRY(begin());
  engine_.drain([this] { return has_route_ || !failure_.is_ok(); }, 2 * kResolveTimeout);
  if (has_route_ && failure_.is_ok()) return Status::ok();
  return Status(Code::kUnavailable,
                fmt::format("no way to rank {}'s RDMA port: {}", peer_.value(),
                            failure_.is_ok() ? "no answer" : failure_.message()))
      .with_peer(peer_);
}

Status Outbound::allocate() {
  const std::uint64_t places = mask_ + 1;
  ring_ = std::make_unique<Operation[]>(places);
  MemoryRegion::Options options;
  options.huge_pages = false;
  options.name = "dunlin-records";
  DUNLIN_ASSIGN(memory_, MemoryRegion::allocate((places + 1) * sizeof(Record), options));
  DUNLIN_ASSIGN(key_, MemoryKey::create(port_.domain(), *memory_));
  records_ = reinterpret_cast<Record*>(memory_->data());
  return Status::ok();
}

Status Outbound::begin() {
  DUNLIN_ASSIGN(session_, engine_.connector(address_, port_).open(peer_, address_, port_.index()));
  session_->attach(*this);
  has_route_ = false;
  DUNLIN_TRY(session_->find_route());
  set_state(State::kConnecting);
  return Status::ok();
}

ibv_qp_cap Outbound::room() const {
  return {static_cast<std::uint32_t>(depth_), kCreditReceives, 1, 1, kInlineWanted};
}

Status Outbound::make_queue_pair() {
  DUNLIN_TRY(port_.make_queue_pair(*session_, kind_, room(), *this));
  ibv_qp_attr current{};
  ibv_qp_init_attr granted{};
  if (const int error = ibv_query_qp(session_->queue_pair(), &current, IBV_QP_CAP, &granted);
      error != 0)
    return Status::from_errno("ibv_query_qp", error);
  inline_limit_ = granted.cap.max_inline_data;
  signal_every_ = std::clamp(static_cast<std::uint32_t>(depth_ / 4), 1U, kSignalEvery);
  for (std::uint32_t i = 0; i < kCreditReceives; ++i) DUNLIN_TRY(session_->post_receive());
  return Status::ok();
}

Status Outbound::request_connection() {
  Request request{};
  request.token = address_.token;
  request.source = static_cast<std::uint32_t>(engine_.context().self.value());
  request.version = kWireVersion;
  request.lane = kind_;
  request.is_resumed = was_connected_ ? 1 : 0;
  request.rail = rail_;
  return session_->request(request, port_.reads());
}

Status Outbound::establish(const Event& event) {
  // Providers may pad the private data.
  if (event.private_data.size() < sizeof answer_)
    return {Code::kCorrupted, "the peer's answer is cut short"};
  std::memcpy(&answer_, event.private_data.data(), sizeof answer_);
  const bool is_sane = answer_.version == kWireVersion && answer_.slots != 0 &&
                       answer_.taken >= std::max(taken_, arrived_) && answer_.taken <= notified_;
  if (!is_sane) return {Code::kCorrupted, "the peer's answer is malformed, or it has lost some"};
  if (was_connected_) {
    DUNLIN_INFO("the {} connection to rank {} is back after {:.1f} s", name(), peer_.value(),
                to_seconds(engine_.context().clock.now() - lost_at_));
  }
  set_state(State::kConnected);
  was_connected_ = true;
  patience_ = kFirstAttempt;
  resume();
  return Status::ok();
}

// Operations are carried out in order: the peer has taken a record, so all before it have landed.
void Outbound::resume() {
  returned_ = last_signaled_ = requested_;
  landing_ = 0;  // what was taken was carried out; the others come again
  std::uint64_t arrived = head_;
  for (std::uint64_t position = head_; position != unposted_; ++position) {
    const std::uint64_t record = at(position).record;
    if (record != 0 && record <= answer_.taken) arrived = position + 1;
  }
  for (std::uint64_t position = head_; position != tail_; ++position) {
    settle(at(position), position < arrived);
  }
  while (head_ != tail_ && at(head_).is_done) ++head_;
  unposted_ = head_;
  notified_ = taken_ = answer_.taken;
  completed_before_ = completed_;
  send_waiting_services();
  pump();
}

void Outbound::settle(Operation& operation, bool has_arrived) {
  const bool was_posted = operation.last_request != 0;
  if (operation.is_atomic() && was_posted) {
    finish(operation, Status(Code::kIoError,
                             fmt::format("{}: the connection was lost meanwhile; it may have been "
                                         "carried out or not",
                                         operation.name))
                          .with_peer(peer_));
  } else if (has_arrived && operation.action != Action::kRead) {
    finish(operation, Status::ok());
  }
  operation.rewind();
}

void Outbound::on_event(const Event& event) {
  const auto failure = [&](std::string_view what) {
    return Status(Code::kPeerDead, fmt::format("{} connection: {}", name(), what));
  };
  // What the peer has taken before it went has completed.
  if (state_ == State::kConnected) engine_.take_all_completions();
  Status status;
  switch (event.type) {
    case EventType::kRouteFound:
      has_route_ = true;
      status = make_queue_pair();
      if (status.is_ok()) status = request_connection();
      break;
    case EventType::kEstablished:
      status = establish(event);
      break;
    case EventType::kRefused:
      status = failure(was_connected_ ? "the peer has closed its end" : event.reason);
      if (event.is_final) return fail(std::move(status).with_peer(peer_));
      break;
    case EventType::kDeviceGone:
      engine_.report_gone_device(event.reason);
      return fail(Status(Code::kUnavailable, event.reason).with_peer(peer_));
    case EventType::kEnded:
      if (state_ != State::kConnected) return;
      status = failure(event.reason);
      break;
    case EventType::kFailed:
      status = failure(event.reason);
      break;
  }
  if (!status.is_ok()) lose(std::move(status).with_peer(peer_));
}

// Stripes ----------------------------------------------------------------------------------------

void Outbound::set_rails(std::unique_ptr<Rails> rails) {
  rails_ = std::move(rails);
}

void Outbound::launch_striped(Operation& operation, StripedPut& put) {
  put.position = tail_;
  put.notifies = std::exchange(operation.notifies, false);
  operation.is_short = false;  // which would count the bytes of its own request
  operation.awaits_stripes = true;
  rails_->stripes().add(put);
  launch();
}

std::size_t Outbound::take_stripes() {
  if (state_ == State::kOver) return 0;
  std::size_t taken = 0;
  Status why = rails_->failure();
  while (why.is_ok()) {
    const auto outcome = rails_->stripes().next_outcome();
    if (!outcome) break;
    // A rail that is over leaves pieces undone, and the lane must not go on behind them.
    if (!outcome->status.is_ok()) why = rails_->failure();
    if (!why.is_ok()) break;
    ++taken;
    Operation& operation = at(outcome->position);
    operation.awaits_stripes = false;
    operation.notifies = operation.has_record_left = outcome->notifies;
    if (outcome->status.is_ok()) continue;
    finish(operation, outcome->status);
    operation.rewind();
    spell_out();
  }
  if (!why.is_ok()) {
    fail(std::move(why).with_peer(peer_));
  } else if (taken != 0) {
    pump();
  }
  return taken;
}

// Losing and ending ------------------------------------------------------------------------------

void Outbound::lose(Status why) {
  if (state_ == State::kOver) return;
  const TimePoint now = engine_.context().clock.now();
  if (state_ == State::kConnected) {
    DUNLIN_INFO("lost the {} connection to rank {}: {}; connecting again", name(), peer_.value(),
                why.message());
    lost_at_ = now;
    loss_ = why;
    fruitless_ = completed_ == completed_before_ ? fruitless_ + 1 : 0;
  } else {
    DUNLIN_DEBUG("no {} connection to rank {} yet: {}", name(), peer_.value(), why.message());
  }
  const bool is_pointless = !was_connected_ || fruitless_ > kFruitlessConnections ||
                            !engine_.context().peers.is_present(peer_) ||
                            now - lost_at_ > engine_.context().config.deadline;
  if (is_pointless) {
    const Status& cause = was_connected_ ? loss_ : why;
    return fail(Status(Code::kPeerDead, std::string(cause.message())).with_peer(peer_));
  }
  drop_connection();
  next_step_ = now + kReconnectPause;
  set_state(State::kLost);
}

void Outbound::step(TimePoint now) {
  look_for_landings(now);
  if (now < next_step_) return;
  Status status;
  if (state_ == State::kLost) {
    next_step_ = now + patience_;
    status = begin();
  } else if (state_ == State::kConnecting) {
    // The connection manager repeats a lost request too, but after four seconds only.
    patience_ = std::min(2 * patience_, kLongestAttempt);
    status = {Code::kPeerDead, "no answer"};
  }
  if (!status.is_ok()) lose(std::move(status).with_peer(peer_));
}

// The NIC lets go of everything.
void Outbound::drop_connection() {
  if (!session_) return;
  port_.detach(*session_, kind_, room());
  session_.reset();
}

void Outbound::fail(Status why) {
  if (state_ == State::kOver) return;
  set_state(State::kOver);
  failure_ = std::move(why);
  services_.clear();
  if (rails_) rails_->fail(failure_);  // before anybody hears that the buffers are free
  drop_connection();
  unposted_ = tail_;
  while (head_ != tail_) finish(at(head_++), failure_);
}

void Outbound::shut(Status why) {
  const auto is_over = [this] {
    post_fence();  // once there is room
    return is_empty();
  };
  engine_.drain(is_over, Delivery(engine_.context().config).close_grace());
  if (!is_empty()) fail(std::move(why));
}

}  // namespace dunlin::transport::verbs
