#include "transports/verbs/path/sender_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transports/verbs/engine.h"
#include "transports/verbs/rails/port.h"

namespace dunlin::transport::verbs {
namespace {

// Receive work requests for returned credits. A peer with a mailbox of n slots returns credits
// every n / 2 notifications (at least one), so at most three returns can be unread at a time. One
// more asks for the connection to be given up.
constexpr std::uint32_t kCreditReceives = 5;

}  // namespace

SenderConnection::SenderConnection(Engine& engine, Port& port, Owner& owner, Rank peer,
                                   LaneKind kind, std::uint8_t rail)
    : engine_(engine), port_(port), owner_(owner), peer_(peer), kind_(kind), rail_(rail) {}

std::string SenderConnection::name() const {
  return rail_ == 0 ? to_string(kind_) : fmt::format("rail {}", rail_);
}

ibv_qp_cap SenderConnection::room() const {
  return {engine_.queue_depth(), kCreditReceives, 1, 1, kInlineWanted};
}

void SenderConnection::set_state(State state) {
  const auto is_restless = [](State one) {
    return one == State::kWaiting || one == State::kConnecting || one == State::kLost;
  };
  engine_.count_restless(static_cast<int>(is_restless(state)) -
                         static_cast<int>(is_restless(state_)));
  if (std::exchange(state_, state) == State::kUsable) owner_.pause();
}

Status SenderConnection::connect(const Address& address) {
  address_ = address;
  lost_at_ = engine_.context().clock.now();
  next_step_ = lost_at_ + engine_.context().config.deadline;
  DUNLIN_TRY(begin());
  engine_.drain([this] { return has_route_ || !failure_.is_ok(); }, 2 * kResolveTimeout);
  if (has_route_ && failure_.is_ok()) return Status::ok();
  return Status(Code::kUnavailable,
                fmt::format("there is no {} to rank {}'s RDMA port: {}",
                            has_route_ ? "connection" : "route", peer_.value(),
                            failure_.is_ok() ? "no answer" : failure_.message()))
      .with_peer(peer_);
}

void SenderConnection::want() {
  set_state(State::kWaiting);
  owner_.wait_for_place();
}

void SenderConnection::start() {
  has_place_ = true;
  is_patient_ = true;
  lacks_since_.reset();
  loss_ = Status::ok();
  lost_at_ = engine_.context().clock.now();
  attempt_timeout_ = kFirstAttempt;
  next_step_ = lost_at_ + (was_connected_ ? attempt_timeout_ : engine_.context().config.deadline);
  if (Status status = begin(); !status.is_ok()) lose(std::move(status).with_peer(peer_));
}

void SenderConnection::rest() {
  session_->disconnect();
  drop();
  set_state(State::kResting);
  leave_place();
}

void SenderConnection::leave_place() {
  has_place_ = false;
  owner_.leave_place();
}

Status SenderConnection::begin() {
  set_state(State::kConnecting);
  if (was_connected_) engine_.refresh(port_);
  DUNLIN_ASSIGN(session_, engine_.connector(address_, port_).open(peer_, address_, port_.index()));
  session_->attach(owner_);
  has_route_ = false;
  return session_->find_route();
}

Status SenderConnection::make_queue_pair() {
  DUNLIN_TRY(port_.make_queue_pair(*session_, kind_, room(), owner_));
  ibv_qp_attr current{};
  ibv_qp_init_attr granted{};
  if (const int error = ibv_query_qp(session_->queue_pair(), &current, IBV_QP_CAP, &granted);
      error != 0)
    return Status::from_errno("ibv_query_qp", error);
  inline_limit_ = granted.cap.max_inline_data;
  for (std::uint32_t i = 0; i < kCreditReceives; ++i) DUNLIN_TRY(session_->post_receive());
  return Status::ok();
}

Status SenderConnection::request() {
  Request request{};
  request.token = address_.token;
  request.source = static_cast<std::uint32_t>(engine_.context().self.value());
  request.version = kWireVersion;
  request.lane = kind_;
  request.is_resumed = was_connected_ ? 1 : 0;
  request.rail = rail_;
  return session_->request(request, port_.reads());
}

Status SenderConnection::establish(const Event& event) {
  DUNLIN_ASSIGN(const Answer answer, Answer::decode(event.private_data));
  DUNLIN_TRY(owner_.settle(answer));
  if (was_connected_ && !loss_.is_ok()) {
    DUNLIN_INFO("the {} connection to rank {} is back after {:.1f} s", name(), peer_.value(),
                to_seconds(engine_.context().clock.now() - lost_at_));
  }
  set_state(State::kUsable);
  was_connected_ = true;
  is_patient_ = false;
  loss_ = Status::ok();
  attempt_timeout_ = kFirstAttempt;
  completed_before_ = owner_.operations_completed();
  owner_.go_on();
  return Status::ok();
}

void SenderConnection::on_event(const Event& event) {
  const auto failure = [&](std::string_view what) {
    return Status(Code::kPeerDead, fmt::format("{} connection: {}", name(), what));
  };
  // Operations that the peer carried out before it left have completions in the queue.
  if (state_ == State::kUsable) engine_.take_all_completions();
  Status status;
  switch (event.type) {
    case EventType::kRouteFound:
      has_route_ = true;
      if (!has_place_) has_place_ = owner_.take_place();
      if (!has_place_) return rest();  // until it is needed
      status = make_queue_pair();
      if (status.is_ok()) status = request();
      break;
    case EventType::kEstablished:
      status = establish(event);
      break;
    case EventType::kRefused:
      if (event.is_final) {
        status = failure(was_connected_ ? "the peer has closed its end" : event.reason);
        return fail(std::move(status).with_peer(peer_));
      }
      status = Status(Code::kBusy, fmt::format("{} connection: {}", name(), event.reason));
      break;
    case EventType::kDeviceGone:
      engine_.report_gone_device(event.reason);
      return fail(Status(Code::kUnavailable, event.reason).with_peer(peer_));
    case EventType::kEnded:
      if (state_ != State::kUsable) return;
      status = failure(event.reason);
      break;
    case EventType::kFailed:
      status = failure(event.reason);
      break;
  }
  if (!status.is_ok()) lose(std::move(status).with_peer(peer_));
}

void SenderConnection::lose(Status why) {
  if (state_ == State::kOver || state_ == State::kResting || state_ == State::kWaiting) return;
  const TimePoint now = engine_.context().clock.now();
  const bool is_first = !was_connected_ && !is_patient_ && loss_.is_ok();
  const bool is_connecting = state_ == State::kConnecting;
  const bool is_lack = is_connecting && why.code() == Code::kResourceExhausted;
  if (!is_lack) lacks_since_.reset();
  if (is_lack && !lacks_since_) lacks_since_ = now;
  if (state_ == State::kUsable) {
    DUNLIN_INFO("lost the {} connection to rank {}: {}; connecting again", name(), peer_.value(),
                why.message());
    lost_at_ = now;
    loss_ = why;
    const bool is_fruitless = owner_.operations_completed() == completed_before_;
    fruitless_ = is_fruitless ? fruitless_ + 1 : 0;
  } else {
    DUNLIN_DEBUG("no {} connection to rank {} yet: {}", name(), peer_.value(), why.message());
    if (loss_.is_ok()) loss_ = why;
  }
  if (!can_try_again(why.code(), is_first, now)) {
    const Status& cause = was_connected_ && !is_lack ? loss_ : why;
    const Code code = is_lack ? Code::kResourceExhausted : Code::kPeerDead;
    return fail(Status(code, std::string(cause.message())).with_peer(peer_));
  }
  drop();
  if (is_lack) engine_.relieve();
  next_step_ = now + kReconnectPause;
  set_state(State::kLost);
}

bool SenderConnection::can_try_again(Code code, bool is_first, TimePoint now) const {
  const TransportContext& context = engine_.context();
  if (fruitless_ > kFruitlessConnections || !context.peers.is_present(peer_)) return false;
  // The caller of connect() learns of its own lack, and may use another transport.
  if (lacks_since_) return !is_first && now - *lacks_since_ <= context.config.deadline;
  if (is_patient_) return true;
  return (!is_first || code == Code::kBusy) && now - lost_at_ <= context.config.deadline;
}

void SenderConnection::step(TimePoint now) {
  if (now < next_step_) return;
  Status status;
  if (state_ == State::kLost) {
    next_step_ = now + attempt_timeout_;
    status = begin();
  } else if (state_ == State::kConnecting) {
    // The connection manager repeats a lost request, too, but only after four seconds.
    attempt_timeout_ = std::min(2 * attempt_timeout_, kLongestAttempt);
    status = {Code::kPeerDead, "no answer"};
  }
  if (!status.is_ok()) lose(std::move(status).with_peer(peer_));
}

// The device no longer uses any memory afterwards.
void SenderConnection::drop() {
  if (!session_) return;
  port_.detach(*session_, kind_, room());
  session_.reset();
}

void SenderConnection::fail(Status why) {
  if (state_ == State::kOver) return;
  set_state(State::kOver);
  failure_ = std::move(why);
  drop();
  leave_place();
  owner_.end(failure_);
}

}  // namespace dunlin::transport::verbs
