#include "transports/tcp/lane.h"

#include <algorithm>

#include "runtime/log.h"

namespace dunlin::transport::tcp {

TcpLane::TcpLane(Engine& engine, const Link& link, Peer& peer, LaneKind kind,
                 const Address& address, std::vector<Endpoint> endpoints)
    : engine_(engine),
      link_(link),
      peer_(peer),
      kind_(kind),
      peer_cells_(address.cells),
      counters_(engine.context().counters.peer(link.peer())),
      depth_(static_cast<std::uint64_t>(engine.context().config.tcp_queue_depth)),
      origin_{engine.address().token, engine.next_incarnation(), 0,
              static_cast<std::uint32_t>(depth_)},
      dialer_(engine.credentials(),
              {{engine.context().self, link.peer(), kind, address.token, origin_},
               std::move(endpoints)},
              engine.poller(), engine.context().clock, engine.context().peers, *this) {
  ring_ = std::make_unique<Operation[]>(depth_);
  engine_.add(*this);
  const bool is_higher = link.peer() < engine_.context().self;
  connect(engine_.context().config.deadline, false,
          is_higher ? Duration(kJoinTime) : Duration::zero());
}

TcpLane::~TcpLane() {
  close();
  engine_.remove(*this);
}

Status TcpLane::check_open() const {
  if (is_closed_) return Status(Code::kClosed, "the lane is closed").with_peer(link_.peer());
  if (!failure_.is_ok()) return failure_;
  return engine_.context().peers.check(link_.peer());
}

Status TcpLane::check_slices(const LocalSlice& local, const RemoteSlice& remote) const {
  DUNLIN_TRY(check_transfer_with_import(link_, local, remote));
  return check_local(link_, local, engine_.context().index, "tcp");
}

Status TcpLane::put(LocalSlice from, RemoteSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  if (from.size() == 0) {
    ++counters_.puts;
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim(MessageKind::kPut, completion);
  if (operation == nullptr) return Status::busy();
  attach_bytes(*operation, from, to);
  return launch();
}

Status TcpLane::put_notify(LocalSlice from, RemoteSlice to, const Notification& notification,
                           Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(from, to));
  DUNLIN_TRY(check_notification(notification, peer_cells_));
  Operation* const operation = claim(MessageKind::kNotify, completion);
  if (operation == nullptr) return Status::busy();
  attach_notification(*operation, notification);
  attach_bytes(*operation, from, to);
  return launch();
}

Status TcpLane::notify(const Notification& notification, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_notification(notification, peer_cells_));
  Operation* const operation = claim(MessageKind::kNotify, completion);
  if (operation == nullptr) return Status::busy();
  attach_notification(*operation, notification);
  return launch();
}

Status TcpLane::flush(Visibility visibility, Completion* completion) {
  DUNLIN_TRY(check_open());
  if (is_empty()) {
    fire(completion, visibility == Visibility::kRemote ? std::exchange(rejection_, Status::ok())
                                                       : Status::ok());
    return Status::ok();
  }
  Operation* const operation = claim(MessageKind::kFlush, completion);
  if (operation == nullptr) return Status::busy();
  operation->is_local_flush = visibility == Visibility::kLocal;
  operation->is_free_when_sent = false;
  return launch();
}

Status TcpLane::get(RemoteSlice from, LocalSlice to, Completion* completion) {
  DUNLIN_TRY(check_open());
  DUNLIN_TRY(check_slices(to, from));
  if (to.size() == 0) {
    ++counters_.gets;
    fire(completion);
    return Status::ok();
  }
  Operation* const operation = claim(MessageKind::kRead, completion);
  if (operation == nullptr) return Status::busy();
  ++counters_.gets;
  counters_.get_bytes += to.size();
  operation->is_free_when_sent = false;
  operation->into = to.data();
  operation->unread = to.size();
  operation->header.region = static_cast<const TcpRemoteRegion&>(*from.region()).id();
  operation->header.offset = from.offset();
  return launch();
}

// Nothing is taken before the peer has welcomed this lane. Messages would have to wait for that,
// and the caller, which may be done when they are posted, might make no progress for long.
Operation* TcpLane::claim(MessageKind kind, Completion* completion) {
  if (tail_ - head_ == depth_ || !was_welcome_) {
    ++counters_.busy;
    return nullptr;
  }
  Operation& operation = at(tail_);
  operation.completion = completion;
  operation.outcome = Status::ok();
  operation.header = MessageHeader{};
  operation.header.order = tail_ + 1;
  operation.header.kind = kind;
  operation.payload = nullptr;
  operation.into = nullptr;
  operation.unread = 0;
  operation.is_local_flush = false;
  operation.is_free_when_sent = true;
  operation.is_done = false;
  return &operation;
}

void TcpLane::attach_notification(Operation& operation, const Notification& notification) {
  ++counters_.notifies;
  MessageHeader& header = operation.header;
  header.cell = static_cast<std::uint32_t>(notification.id);
  header.sequence = notification.sequence;
  header.tag = notification.tag;
  header.length = notification.length;
  header.inline_size = static_cast<std::uint8_t>(notification.inline_data.size());
  if (header.inline_size != 0)
    copy_inline(operation.inline_data, notification.inline_data.data(), header.inline_size);
}

void TcpLane::attach_bytes(Operation& operation, const LocalSlice& from, const RemoteSlice& to) {
  ++counters_.puts;
  if (from.size() == 0) return;
  counters_.put_bytes += from.size();
  MessageHeader& header = operation.header;
  header.region = static_cast<const TcpRemoteRegion&>(*to.region()).id();
  header.offset = to.offset();
  header.size = to.size();
  if (from.size() > kWithinLimit) header.flags |= kPayloadFollows;
  if (from.size() <= kKeptLimit) operation.payload = kept_.keep({from.data(), from.size()});
  operation.is_free_when_sent = operation.payload != nullptr;
  if (!operation.is_free_when_sent) operation.payload = from.data();
}

Status TcpLane::launch() {
  Operation& operation = at(tail_++);
  operation.kept_up_to = kept_.mark();
  // The caller waits for this operation until an answer arrives. Gets have one of their own.
  const bool is_answered = operation.is_local_flush || operation.header.kind == MessageKind::kRead;
  if (!operation.is_free_when_sent && !is_answered) operation.header.flags |= kWantsAck;
  if (connection_ != nullptr && !connection_->is_blocked()) connection_->send_in_turn();
  return Status::ok();
}

std::size_t TcpLane::progress() {
  const std::uint64_t before = completed_;
  engine_.progress();
  return completed_ - before;
}

void TcpLane::check_peer() {
  if (Status status = engine_.context().peers.check(link_.peer()); !status.is_ok()) fail(status);
}

void TcpLane::fail(const Status& why) {
  if (!failure_.is_ok()) return;
  failure_ = why;
  dialer_.stop();
  leave();
  for (std::uint64_t position = head_; position != tail_; ++position) {
    Operation& operation = at(position);
    if (operation.is_done) continue;
    if (operation.outcome.is_ok()) operation.outcome = why;
    complete(operation);
  }
  head_ = sent_ = unsent_ = undone_ = tail_;
}

void TcpLane::close() noexcept {
  if (is_closed_) return;
  is_closed_ = true;
  // The peer acknowledges small messages when it has got several, or when it is asked to.
  bool has_asked = false;
  const auto is_over = [&] {
    if (!has_asked && !is_empty() && failure_.is_ok()) {
      if (Operation* const flush = claim(MessageKind::kFlush, nullptr)) {
        has_asked = true;
        flush->is_free_when_sent = false;
        (void)launch();
      }
    }
    return is_empty();
  };
  engine_.drain(is_over, kCloseGrace);
  // What the peer has not taken by now is given up. It does not take this for a death, because only
  // the sender of a lane cares for its connection.
  fail(Status(Code::kClosed, "the lane was closed before the peer had taken it")
           .with_peer(link_.peer()));
}

}  // namespace dunlin::transport::tcp
