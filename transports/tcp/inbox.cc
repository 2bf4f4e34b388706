#include "transports/tcp/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

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

Status Inbox::adopt(Admitted admitted) {
  const Purpose& purpose = admitted.purpose;
  const bool is_same_process = purpose.source_token == token_;
  if (is_same_process && purpose.incarnation < incarnation_) {
    return {Code::kPermissionDenied,
            fmt::format("rank {} has replaced this {} lane", source_.value(), to_string(lane_))};
  }
  if (!is_same_process || purpose.incarnation != incarnation_) {
    token_ = purpose.source_token;
    incarnation_ = purpose.incarnation;
    carried_out_ = 0;
    rejections_.clear();
  }
  end();
  // A sender that has as many operations outstanding as it may must hear of some of them.
  ack_interval_ = std::max<std::uint64_t>(purpose.depth / 4, 1);
  rejections_sent_ = 0;
  is_ack_due_ = true;
  DUNLIN_TRY(channel_.start(engine_.poller(), std::move(admitted.socket), admitted.keys,
                            Channel::End::kServer, *this));
  answer();
  return Status::ok();
}

void Inbox::end() {
  channel_.stop();
  arrival_.reset();
  revoked_.clear();
  reads_.clear();
  next_read_ = 0;
}

void Inbox::revoke(std::uint64_t region) {
  if (arrival_ && arrival_->header.region == region && arrival_->outcome == Code::kOk) {
    arrival_->outcome = Code::kNotFound;
    channel_.reader().drop_payload();
  }
  if (!channel_.is_open()) return;
  revoked_.push_back(region);
  if (!channel_.is_blocked()) answer();
}

void Inbox::announce_closing() {
  if (!channel_.is_open()) return;
  is_closing_due_ = true;
  if (!channel_.is_blocked()) answer();
}

void Inbox::on_ready() {
  if (Status status = receive(); !status.is_ok()) {
    lose(status);
    return;
  }
  answer();
}

Status Inbox::receive() {
  return channel_.receive(
      [this](std::span<const std::byte> frame) -> Status {
        while (!frame.empty()) {
          const auto message = Message::take(frame);
          if (!message) return {Code::kCorrupted, "a malformed message arrived"};
          DUNLIN_TRY(accept(*message));
        }
        return Status::ok();
      },
      [this]() -> Status {
        const Arrival arrival = *arrival_;
        arrival_.reset();
        const Message whole{
            arrival.header, std::span(arrival.inline_data).first(arrival.header.inline_size), {}};
        settle(arrival.header, whole.notification(), arrival.outcome);
        return Status::ok();
      });
}

void Inbox::lose(const Status& why) {
  // The peer makes a new connection if it needs one.
  DUNLIN_LOG(why.code() == Code::kCorrupted ? LogLevel::kError : LogLevel::kDebug,
             "the tcp connection from rank {} ({} lane) has ended: {}", source_.value(),
             to_string(lane_), why.to_string());
  end();
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
    channel_.reader().expect(target.data, header.size);
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

void Inbox::answer() {
  std::size_t budget = kTurnBytes;
  while (channel_.is_open()) {
    Status status = channel_.flush(budget);
    if (status.is_busy()) return;
    if (!status.is_ok()) {
      lose(status);
    } else if (!append_answers()) {
      return;
    }
  }
}

bool Inbox::append(const AnswerHeader& header, const std::byte* bytes) {
  std::byte* const to = channel_.writer().append(sizeof header + header.size);
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
