// The part of TcpLane that keeps the connection and sends the operations' messages over it.
#include <algorithm>
#include <cstring>

#include "runtime/log.h"
#include "transports/tcp/lane.h"
#include "transports/tcp/socket.h"

namespace dunlin::transport::tcp {

bool TcpLane::step(TimePoint now) {
  dialer_.step(now);
  if (connection_ != nullptr && !is_empty() && path_.is_silent(connection_->socket(), now)) {
    connection_->end(
        {Code::kDeadlineExceeded, "the host of the peer does not acknowledge what was sent"});
  }
  return dialer_.is_active();
}

// Joins a connection that the peer's lane has made, or else makes one.
void TcpLane::connect(Duration timeout, bool counts_silence_only, Duration delay) {
  if (may_join()) {
    join(peer_.inboxes[index_of(kind_)].connection());
    return;
  }
  origin_.attempt = engine_.next_attempt();
  dialer_.start(origin_.attempt, timeout, counts_silence_only, delay);
  engine_.want_steps();
}

bool TcpLane::may_join() const {
  const auto& accepted = peer_.inboxes[index_of(kind_)].connection();
  return link_.peer() < engine_.context().self && accepted != nullptr && accepted->is_open() &&
         !accepted->has_sender();
}

// A lane that has a connection keeps it. To go on over another one takes a further turn of the
// peer's progress, and a peer that has got all that it waited for may give none.
void TcpLane::on_accepted(Rank source, LaneKind kind) {
  if (source != link_.peer() || kind != kind_ || is_closed_ || !failure_.is_ok()) return;
  if (connection_ == nullptr && may_join()) join(peer_.inboxes[index_of(kind_)].connection());
}

void TcpLane::join(std::shared_ptr<Connection> connection) {
  dialer_.stop();
  connection_ = std::move(connection);
  path_.reset();
  connection_->attach(*this);
  origin_.attempt = engine_.next_attempt();
  is_join_due_ = true;
  if (!connection_->is_blocked()) connection_->send_in_turn();
}

void TcpLane::leave() {
  const auto left = std::exchange(connection_, nullptr);
  is_join_due_ = has_begun_ = is_welcome_ = false;
  if (left != nullptr) left->leave(*this);
}

void TcpLane::on_connected(Fd socket, const SessionKeys& keys) {
  DUNLIN_DEBUG("connected the {} lane to rank {} over tcp, {}", to_string(kind_),
               link_.peer().value(), to_string(keys.cipher));
  auto made = Connection::start(engine_.poller(), peer_, kind_, std::move(socket), keys,
                                Channel::End::kClient);
  if (!made) {
    on_lost(made.status());
    return;
  }
  connection_ = std::move(made).value();
  path_.reset();
  connection_->attach(*this);
}

void TcpLane::on_unreachable(const Status& why) {
  // A peer that has never been reached may be alive.
  if (!was_welcome_) {
    fail(why);
    return;
  }
  PeerTable& peers = engine_.context().peers;
  peers.mark(link_.peer(), PeerState::kDead, std::string(why.message()));
  fail(Status(Code::kPeerDead, std::string(why.message())).with_peer(link_.peer()));
}

// An outage that the job survives ends no lane.
Duration TcpLane::renew_timeout() const {
  return std::max<Duration>(kRenewTimeout, engine_.context().config.reconnect_timeout);
}

// Decides what the end of the connection means, and makes another one if the peer may be alive.
void TcpLane::on_lost(const Status& why) {
  connection_.reset();
  is_join_due_ = has_begun_ = is_welcome_ = false;
  if (!failure_.is_ok()) return;
  if (peer_.has_closed) {
    fail(Status(Code::kPeerDead, "the peer has closed its end").with_peer(link_.peer()));
    return;
  }
  check_peer();
  if (!failure_.is_ok()) return;
  const TimePoint now = engine_.context().clock.now();
  if (has_progressed_ || (was_welcome_ && is_empty())) {
    stuck_since_ = now;
    renew_delay_ = Duration::zero();
  } else if (now - stuck_since_ >= renew_timeout()) {
    fail(Status(why).with_peer(link_.peer()));
    return;
  }
  has_progressed_ = false;
  DUNLIN_LOG(why.code() == Code::kCorrupted ? LogLevel::kError : LogLevel::kInfo,
             "the tcp connection of the {} lane to rank {} has ended ({}); connecting again",
             to_string(kind_), link_.peer().value(), why.to_string());
  const Duration delay = std::exchange(
      renew_delay_, std::clamp<Duration>(2 * renew_delay_, kFirstRetryDelay, kLongestRetryDelay));
  connect(was_welcome_ ? renew_timeout() : engine_.context().config.deadline, was_welcome_, delay);
}

bool TcpLane::needs_sending(const Operation& operation, std::uint64_t order) const {
  if (operation.is_local_flush) return false;
  // The answer to a get may have been lost with a former connection.
  return order > carried_before_ ||
         (operation.header.kind == MessageKind::kRead && operation.unread != 0);
}

bool TcpLane::append_join() {
  if (!is_join_due_) return false;
  std::byte* const to = connection_->writer().append(FrameKind::kMessages, sizeof(MessageHeader));
  if (to == nullptr) return true;
  const MessageHeader header = MessageHeader::join(origin_);
  std::memcpy(to, &header, sizeof header);
  is_join_due_ = false;
  return true;
}

bool TcpLane::append_messages() {
  if (!is_welcome_) return append_join();
  bool has_any = false;
  while (unsent_ != tail_) {
    Operation& operation = at(unsent_);
    if (needs_sending(operation, unsent_ + 1)) {
      if (!append(operation, unsent_ + 1)) return true;
      has_any = true;
    }
    ++unsent_;
  }
  if (!has_any) note_sent();
  return has_any;
}

bool TcpLane::append(Operation& operation, std::uint64_t order) {
  MessageHeader& header = operation.header;
  header.seen = acknowledged_;
  if (header.kind == MessageKind::kRead) {
    header.size = operation.unread;
    header.flags = order <= carried_before_ ? std::uint8_t{kIsRepeated} : std::uint8_t{0};
  }
  const std::size_t within = header.size_within();
  std::byte* to = connection_->writer().append(FrameKind::kMessages, header.wire_size());
  if (to == nullptr) return false;
  std::memcpy(to, &header, sizeof header);
  to += sizeof header;
  if (header.inline_size != 0) copy_inline(to, operation.inline_data, header.inline_size);
  if (within != 0) std::memcpy(to + header.inline_size, operation.payload, within);
  if (header.has(kPayloadFollows)) connection_->writer().attach({operation.payload, header.size});
  appended_ = std::max(appended_, order);
  return true;
}

void TcpLane::on_written() {
  if (is_welcome_) note_sent();
}

// Everything before unsent_ is in the socket.
void TcpLane::note_sent() {
  for (; sent_ < unsent_; ++sent_) {
    Operation& operation = at(sent_);
    if (operation.is_free_when_sent && !operation.is_done) complete(operation);
  }
  settle();
}

}  // namespace dunlin::transport::tcp
