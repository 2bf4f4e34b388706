#include "transports/tcp/dialer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transports/tcp/constants.h"
#include "transports/tcp/socket.h"

namespace dunlin::transport::tcp {

void Dialer::start(std::uint64_t attempt, Duration timeout, bool counts_silence_only,
                   Duration delay) {
  stop();
  target_.purpose.origin.attempt = attempt;
  const TimePoint now = clock_.now();
  timeout_ = timeout;
  counts_silence_only_ = counts_silence_only;
  give_up_at_ = now + timeout;
  delay_ = kFirstRetryDelay;
  next_ = 0;
  last_failure_ = "no attempt was made";
  has_tried_ = false;
  state_ = State::kWaiting;
  due_at_ = now + delay;
  if (delay == Duration::zero()) this->attempt(now);
}

void Dialer::stop() {
  state_ = State::kIdle;
  watch_.stop();
  socket_.reset();
  handshake_.reset();
}

void Dialer::attempt(TimePoint now) {
  has_tried_ = true;
  state_ = State::kConnecting;
  due_at_ = now + kConnectTimeout;
  auto socket = connect_to(target_.endpoints[next_]);
  if (!socket) return fail(socket.status());
  socket_ = std::move(socket).value();
  if (Status status = watch_.start(poller_, socket_.get(), *this, true); !status.is_ok())
    fail(status);
}

void Dialer::step(TimePoint now) {
  if (state_ == State::kIdle) return;
  if (state_ != State::kWaiting && now >= due_at_) {
    fail({Code::kDeadlineExceeded, state_ == State::kConnecting
                                       ? "no answer to the connection request"
                                       : "no answer to the greeting"});
  }
  if (state_ != State::kWaiting) return;
  if (counts_silence_only_ && peers_.state(target_.purpose.target) == PeerState::kStalled)
    give_up_at_ = now + timeout_;
  if (now >= give_up_at_ && has_tried_) {
    stop();
    user_.on_unreachable(
        Status(Code::kUnavailable,
               fmt::format("cannot connect to rank {} over tcp for {:.1f} s: {}",
                           target_.purpose.target.value(), to_seconds(timeout_), last_failure_))
            .with_peer(target_.purpose.target));
  } else if (now >= due_at_) {
    attempt(now);
  }
}

void Dialer::on_ready() {
  Status status = state_ == State::kConnecting ? greet() : Status::ok();
  if (status.is_ok()) status = finish();
  if (status.is_error()) fail(status);
}

Status Dialer::greet() {
  DUNLIN_TRY(connect_outcome(socket_.get()));
  watch_.want(true, false);
  const TimePoint now = clock_.now();
  due_at_ = now + kHandshakeTimeout;
  if (counts_silence_only_) give_up_at_ = now + timeout_;
  state_ = State::kGreeting;
  received_ = 0;
  handshake_.emplace(mine_, target_.purpose);
  return send_whole(socket_.get(), &handshake_->hello(), sizeof handshake_->hello());
}

// Returns busy while the answer has not arrived.
Status Dialer::finish() {
  Status received = receive_whole(socket_.get(), &answer_, sizeof answer_, received_);
  if (received.code() == Code::kClosed) {
    return {Code::kPermissionDenied,
            "it refused the connection; the reason is in the log of the process there"};
  }
  DUNLIN_TRY(std::move(received));
  DUNLIN_ASSIGN(const ClientProof proof, handshake_->on_answer(answer_));
  DUNLIN_TRY(send_whole(socket_.get(), &proof, sizeof proof));
  const SessionKeys keys = handshake_->keys();
  Fd socket = std::move(socket_);
  watch_.stop();
  stop();
  user_.on_connected(std::move(socket), keys);
  return Status::ok();
}

void Dialer::fail(const Status& why) {
  last_failure_ = fmt::format("{}: {}", target_.endpoints[next_].to_string(), why.message());
  const TimePoint now = clock_.now();
  stop();
  state_ = State::kWaiting;
  due_at_ = now;
  next_ = (next_ + 1) % target_.endpoints.size();
  if (next_ != 0) return;
  due_at_ = now + delay_;
  delay_ = std::min<Duration>(2 * delay_, kLongestRetryDelay);
}

}  // namespace dunlin::transport::tcp
