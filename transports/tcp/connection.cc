#include "transports/tcp/connection.h"

#include <utility>

#include "transports/tcp/engine.h"
#include "transports/tcp/wire.h"

namespace dunlin::transport::tcp {

Result<std::shared_ptr<Connection>> Connection::start(Poller& poller, Peer& peer, LaneKind lane,
                                                      Fd socket, const SessionKeys& keys,
                                                      Channel::End end) {
  std::shared_ptr<Connection> made(new Connection(peer, lane));
  DUNLIN_TRY(made->channel_.start(poller, std::move(socket), keys, end, *made));
  return made;
}

void Connection::leave(const Sender& sender) {
  if (sender_ != &sender) return;
  sender_ = nullptr;
  const bool is_cut = channel_.writer().has_payload();
  if (receiver_ != nullptr && !is_cut) return;
  peer_.was_cut = peer_.was_cut || receiver_ != nullptr;
  end({Code::kClosed, "this end was closed"});
}

void Connection::leave(const Receiver& receiver, const Status& why) {
  if (receiver_ != &receiver) return;
  receiver_ = nullptr;
  end(why);
}

void Connection::on_ready() {
  const auto self = shared_from_this();  // its users may drop it
  if (Status status = receive(); !status.is_ok()) {
    end(status);
    return;
  }
  send_in_turn();
}

void Connection::send_in_turn() {
  const auto self = shared_from_this();
  std::size_t budget = kTurnBytes;
  while (is_open()) {
    Status status = channel_.flush(budget);
    if (status.is_busy()) return;
    if (!status.is_ok()) {
      end(read_rest(std::move(status)));
      return;
    }
    if (sender_ != nullptr) sender_->on_written();
    // Answers go first: nothing can be appended behind a message with a payload.
    bool has_any = receiver_ != nullptr && receiver_->append_answers();
    if (sender_ != nullptr && sender_->append_messages()) has_any = true;
    if (!has_any) return;
  }
}

// The connection is broken at this end. What the peer has sent before says why.
Status Connection::read_rest(Status why) {
  for (int turn = 0; turn < kMostLastTurns; ++turn) {
    if (Status received = receive(); received.is_error()) return received;
    if (!is_open() || reader().is_drained()) break;
  }
  return why;
}

Status Connection::receive() {
  return channel_.receive([this](auto frame) { return on_messages(frame); },
                          [this](auto frame) { return on_answers(frame); },
                          [this] { return receiver_->on_payload(); });
}

Status Connection::on_messages(std::span<const std::byte> frame) {
  if (receiver_ == nullptr) {
    auto rest = frame;
    const auto first = Message::take(rest);
    if (!first || first->header.kind != MessageKind::kJoin)
      return {Code::kCorrupted, "a message arrived of a lane that has not joined"};
    DUNLIN_TRY(peer_.inboxes[index_of(lane_)].join(shared_from_this(), first->header));
    frame = rest;
  }
  return receiver_->on_messages(frame);
}

Status Connection::on_answers(std::span<const std::byte> frame) {
  while (!frame.empty()) {
    const auto answer = Answer::take(frame);
    if (!answer) return {Code::kCorrupted, "a malformed answer arrived"};
    switch (answer->header.kind) {
      case AnswerKind::kRevoked:
        peer_.imports.revoke(answer->header.region);
        break;
      case AnswerKind::kClosing:
        peer_.has_closed = true;
        return Status(Code::kPeerDead, "the peer has closed its end").with_peer(peer_.rank);
      default:
        if (sender_ != nullptr) DUNLIN_TRY(sender_->on_answer(*answer));
    }
  }
  return Status::ok();
}

void Connection::end(const Status& why) {
  const auto self = shared_from_this();
  channel_.stop();
  // The inbox first: the lane may look there for another connection.
  if (Receiver* const receiver = std::exchange(receiver_, nullptr)) receiver->on_lost(why);
  if (Sender* const sender = std::exchange(sender_, nullptr)) sender->on_lost(why);
}

}  // namespace dunlin::transport::tcp
