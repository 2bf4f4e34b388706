#include "transports/tcp/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transports/tcp/engine.h"

namespace dunlin::transport::tcp {
namespace {

const char* reason(Code code) {
  return code == Code::kNotFound
             ? "its region is not registered"
             : "it does not lie within its region, or its cell is not on the board";
}

}  // namespace

Status Inbox::check(const Origin& origin) const {
  if (origin.token != origin_.token) return Status::ok();
  if (origin.incarnation < origin_.incarnation) {
    return {Code::kPermissionDenied,
            fmt::format("rank {} has replaced this {} lane", source_.value(), to_string(lane_))};
  }
  if (origin.attempt < origin_.attempt) {
    return {Code::kClosed, fmt::format("rank {} has replaced this connection of its {} lane",
                                       source_.value(), to_string(lane_))};
  }
  return Status::ok();
}

Status Inbox::adopt(Admitted admitted) {
  const Origin& origin = admitted.purpose.origin;
  DUNLIN_TRY(check(origin));
  DUNLIN_ASSIGN(auto connection, Connection::start(engine_.poller(), engine_.peer(source_), lane_,
                                                   std::move(admitted.socket), admitted.keys,
                                                   Channel::End::kServer));
  begin(origin, std::move(connection));
  // The end of a former connection may have made this rank's lane join the new one, and find that
  // it has ended, too.
  if (connection_ != nullptr) answer();
  return Status::ok();
}

Status Inbox::join(std::shared_ptr<Connection> connection, const MessageHeader& header) {
  // A rank that counts as dead writes no more.
  DUNLIN_TRY(engine_.context().peers.check(source_));
  DUNLIN_TRY(check(header.origin()));
  begin(header.origin(), std::move(connection));
  return Status::ok();
}

void Inbox::begin(const Origin& origin, std::shared_ptr<Connection> connection) {
  if (origin.token != origin_.token || origin.incarnation != origin_.incarnation) {
    carried_out_ = 0;
    rejections_.clear();
  }
  origin_ = origin;
  const auto former = std::exchange(connection_, std::move(connection));
  forget_arrivals();
  engine_.peer(source_).was_cut = false;
  // A sender that has as many operations outstanding as it may must hear of some of them.
  ack_interval_ = std::max<std::uint64_t>(origin.depth / 4, 1);
  rejections_sent_ = 0;
  is_begin_due_ = is_ack_due_ = true;
  connection_->attach(*this);
  // The lane of this process may be there, and join the new connection now.
  if (former != nullptr && former != connection_)
    former->leave(*this, {Code::kClosed, "the peer has replaced it"});
}

void Inbox::forget_arrivals() {
  arrival_.reset();
  revoked_.clear();
  reads_.clear();
  next_read_ = 0;
}

void Inbox::end() {
  if (const auto former = std::exchange(connection_, nullptr))
    former->leave(*this, {Code::kClosed, "the peer is gone"});
  forget_arrivals();
}

void Inbox::revoke(std::uint64_t region) {
  if (connection_ == nullptr) return;
  if (arrival_ && arrival_->header.region == region && arrival_->outcome == Code::kOk) {
    arrival_->outcome = Code::kNotFound;
    connection_->reader().drop_payload();
  }
  revoked_.push_back(region);
  answer();
}

void Inbox::announce_closing() {
  is_closing_due_ = true;
  if (connection_ != nullptr) answer();
}

void Inbox::answer() {
  if (!connection_->is_blocked()) connection_->send_in_turn();
}

Status Inbox::on_messages(std::span<const std::byte> frame) {
  while (!frame.empty()) {
    const auto message = Message::take(frame);
    if (!message) return {Code::kCorrupted, "a malformed message arrived"};
    DUNLIN_TRY(message->header.kind == MessageKind::kJoin ? join(connection_, message->header)
                                                          : accept(*message));
  }
  return Status::ok();
}

Status Inbox::on_payload() {
  const Arrival arrival = *arrival_;
  arrival_.reset();
  const Message whole{
      arrival.header, std::span(arrival.inline_data).first(arrival.header.inline_size), {}};
  settle(arrival.header, whole.notification(), arrival.outcome);
  return Status::ok();
}

void Inbox::on_lost(const Status& why) {
  // The peer makes a new connection if it needs one.
  DUNLIN_LOG(why.code() == Code::kCorrupted ? LogLevel::kError : LogLevel::kDebug,
             "the tcp connection from rank {} ({} lane) has ended: {}", source_.value(),
             to_string(lane_), why.to_string());
  connection_.reset();
  forget_arrivals();
}

Status Inbox::accept(const Message& message) {
  const MessageHeader& header = message.header;
  const bool is_repeated = header.has(kIsRepeated);
  if (is_repeated ? header.order > carried_out_ : header.order <= carried_out_) {
    return {Code::kCorrupted,
            fmt::format("message {} arrived after message {}", header.order, carried_out_)};
  }
  while (rejections_sent_ != 0 && rejections_.front().order <= header.seen) {
    rejections_.erase(rejections_.begin());
    --rejections_sent_;
  }
  if (header.kind == MessageKind::kRead) return accept_read(header);
  RegionTable::Found target;
  if (header.kind == MessageKind::kNotify && header.cell >= engine_.context().board.size()) {
    target.code = Code::kOutOfRange;
  } else if (header.size != 0) {
    target = engine_.regions().find(header.region, header.offset, header.size);
  }
  if (header.has(kPayloadFollows)) {
    arrival_.emplace();
    arrival_->header = header;
    arrival_->outcome = target.code;
    std::copy(message.inline_data.begin(), message.inline_data.end(),
              arrival_->inline_data.begin());
    connection_->reader().expect(target.data, header.size);
    return Status::ok();
  }
  if (target.data != nullptr && header.size != 0)
    std::memcpy(target.data, message.within.data(), message.within.size());
  settle(header, message.notification(), target.code);
  return Status::ok();
}

Status Inbox::accept_read(const MessageHeader& header) {
  if (reads_.size() - next_read_ >= kMostPendingReads)
    return {Code::kCorrupted, "more gets arrived than a lane can have outstanding"};
  const Code outcome = engine_.regions().find(header.region, header.offset, header.size).code;
  if (outcome == Code::kOk) {
    if (next_read_ > reads_.size() / 2) {  // more are answered than not
      reads_.erase(reads_.begin(), reads_.begin() + static_cast<std::ptrdiff_t>(next_read_));
      next_read_ = 0;
    }
    reads_.push_back({header.order, header.region, header.offset, header.size});
  } else {
    reject(header, outcome);
  }
  if (!header.has(kIsRepeated)) count(header);
  return Status::ok();
}

void Inbox::settle(const MessageHeader& header, const Notification& notification, Code outcome) {
  if (outcome != Code::kOk) {
    reject(header, outcome);
  } else if (header.kind == MessageKind::kNotify) {
    engine_.context().board.cell(NotifyId{header.cell}).publish(notification);
  }
  count(header);
}

void Inbox::count(const MessageHeader& header) {
  carried_out_ = header.order;
  if (++unacknowledged_ >= ack_interval_ || header.has(kWantsAck)) is_ack_due_ = true;
}

void Inbox::reject(const MessageHeader& header, Code code) {
  // A put in flight while its target was deregistered is not an error here. The sender is told.
  const bool is_late = code == Code::kNotFound && engine_.regions().has_known(header.region);
  DUNLIN_LOG(is_late ? LogLevel::kDebug : LogLevel::kWarn,
             "refused rank {} {} {} bytes, region {} at offset {}, cell {}: {}", source_.value(),
             header.kind == MessageKind::kRead ? "a get of" : "a put of", header.size,
             header.region, header.offset, header.cell, reason(code));
  rejections_.push_back({header.order, header.region, code});
}

bool Inbox::append(const AnswerHeader& header, const std::byte* bytes) {
  std::byte* const to =
      connection_->writer().append(FrameKind::kAnswers, sizeof header + header.size);
  if (to == nullptr) return false;
  std::memcpy(to, &header, sizeof header);
  if (bytes != nullptr) std::memcpy(to + sizeof header, bytes, header.size);
  return true;
}

// Returns whether there is anything to write. A refusal goes before the acknowledgment of
// its message, so that an acknowledged operation is known not to have been refused.
bool Inbox::append_answers() {
  bool has_any = false;
  // Once there is no more room, nothing that comes later is appended either.
  const auto add = [&](const AnswerHeader& header) {
    if (!append(header)) return false;
    has_any = true;
    return true;
  };
  if (is_begin_due_) {
    if (!add({0, origin_.attempt, 0, AnswerKind::kBegin, 0, {}})) return true;
    is_begin_due_ = false;
  }
  for (; rejections_sent_ < rejections_.size(); ++rejections_sent_) {
    const Rejection& it = rejections_[rejections_sent_];
    const auto code = static_cast<std::uint8_t>(it.code);
    if (!add({it.order, it.region, 0, AnswerKind::kRejected, code, {}})) return true;
  }
  if (is_ack_due_) {
    if (!add({carried_out_, 0, 0, AnswerKind::kAcknowledged, 0, {}})) return true;
    is_ack_due_ = false;
    unacknowledged_ = 0;
  }
  for (; !revoked_.empty(); revoked_.pop_back()) {
    if (!add({0, revoked_.back(), 0, AnswerKind::kRevoked, 0, {}})) return true;
  }
  if (is_closing_due_) {
    if (!add({0, 0, 0, AnswerKind::kClosing, 0, {}})) return true;
    is_closing_due_ = false;
  }
  return append_reads() || has_any;
}

// The same for the bytes of gets.
bool Inbox::append_reads() {
  bool has_any = false;
  for (; next_read_ != reads_.size(); ++next_read_) {
    PendingRead& it = reads_[next_read_];
    while (it.left != 0) {
      // The other half is for the messages of the lane that shares the connection.
      if (connection_->writer().staged() > kStagingBytes / 2) return true;
      const std::size_t size = std::min<std::size_t>(it.left, kReadPiece);
      const RegionTable::Found from = engine_.regions().find(it.region, it.offset, size);
      if (from.code != Code::kOk) {  // deregistered since the message arrived
        rejections_.push_back({it.order, it.region, from.code});
        it.left = 0;
        return true;
      }
      if (!append({it.order, it.region, size, AnswerKind::kRead, 0, {}}, from.data)) return true;
      has_any = true;
      it.offset += size;
      it.left -= size;
    }
  }
  reads_.clear();
  next_read_ = 0;
  return has_any;
}

}  // namespace dunlin::transport::tcp
