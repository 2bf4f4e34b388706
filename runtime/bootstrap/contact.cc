#include "runtime/bootstrap/contact.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/service_thread.h"
#include "runtime/log.h"

namespace dunlin::bootstrap {

Contact::Contact(const JoinPlan& plan, AuthenticatedSocket connection, Deliver deliver,
                 std::function<void()> wake)
    : plan_(plan),
      deliver_(std::move(deliver)),
      wake_(std::move(wake)),
      heartbeat_(connection.heartbeat),
      silence_(std::max<Duration>(kStallPeriods * connection.heartbeat, kShortestSilence)),
      lease_(connection.grace * kCutOffNumerator / kCutOffDenominator),
      key_(connection.session.key),
      coordinator_(plan.process.is_in_space_of(connection.coordinator)
                       ? watch_process(connection.coordinator)
                       : ProcessWatch()),
      socket_(std::move(connection.socket)) {
  next_beat_ = last_turn_ = heard_ = contact_ = SteadyClock().now();
}

Contact::~Contact() {
  if (seeker_.joinable()) seeker_.join();
}

void Contact::send(const Message& message) {
  if (end_) return;
  if (message.type == MessageType::kCancel) session_.withdraw(message.request);
  // It cannot fail without a limit.
  (void)session_.keep(message, std::numeric_limits<std::size_t>::max());
}

void Contact::turn(TimePoint now) {
  if (end_) return drop_attempt();
  // If this process was stopped, what has arrived meanwhile waits to be read.
  if (now - last_turn_ > silence_ / 2) heard_ = now;
  last_turn_ = now;
  if (socket_.is_open()) {
    if (const Status status = exchange(now); !status) lose(status, now);
  }
  if (!end_ && !socket_.is_open()) seek(now);
}

Status Contact::exchange(TimePoint now) {
  // What has arrived counts even if nothing can be sent any more: it may tell that the job has
  // ended.
  const Status passed = pass_kept();
  const Status received = socket_.receive();
  for (;;) {
    DUNLIN_ASSIGN(std::optional<Message> message, socket_.next());
    if (!message) break;
    DUNLIN_TRY(receive(std::move(*message), now));
    if (end_) return Status::ok();
  }
  DUNLIN_TRY(Status(passed));
  DUNLIN_TRY(pass_kept());  // what deliver_() has sent
  DUNLIN_TRY(received);
  if (now - heard_ > silence_) {
    return {Code::kDeadlineExceeded,
            fmt::format("it has been silent for {:.1f} s", to_seconds(now - heard_))};
  }
  if (now >= next_beat_) {
    next_beat_ = now + heartbeat_;
    return beat(++beats_ % kHeartbeatsPerAnswer == 1, now);
  }
  return session_.is_telling_due() ? beat(false, now) : Status::ok();
}

Status Contact::receive(Message message, TimePoint now) {
  heard_ = now;
  if (message.type == MessageType::kEnd) {
    end_ = End{Status(Code::kUnavailable, "it has ended"), false};
    socket_.close();
    return Status::ok();
  }
  if (message.type != MessageType::kHeartbeat) {
    session_.note_received(message);
    deliver_(std::move(message));
    return Status::ok();
  }
  const std::size_t kept = session_.kept().size();
  DUNLIN_TRY(session_.acknowledge(message.number));
  passed_ -= std::min(passed_, kept - session_.kept().size());
  while (!asked_.empty() && asked_.front().first <= message.request) {
    contact_ = asked_.front().second;
    asked_.pop_front();
  }
  return Status::ok();
}

// Leaves in the session what the socket does not take now: it has a bound, and the session has
// none.
Status Contact::pass_kept() {
  const auto& kept = session_.kept();
  for (; passed_ < kept.size() && socket_.unsent_bytes() < kMaxUnsentBytes / 2; ++passed_)
    DUNLIN_TRY(socket_.send(kept[passed_]));
  return socket_.flush();
}

Status Contact::beat(bool asks, TimePoint now) {
  if (asks) asked_.emplace_back(beats_, now);
  session_.note_told();
  return socket_.send({.type = MessageType::kHeartbeat,
                       .request = asks ? beats_ : kNoRequest,
                       .number = session_.received()});
}

void Contact::lose(const Status& why, TimePoint now) {
  DUNLIN_INFO("bootstrap: rank {} has lost its connection to {}: {}", plan_.job.rank.value(),
              plan_.host_name(), why.message());
  was_closed_ = why.code() == Code::kClosed;
  lost_how_ = why.message();
  lost_at_ = next_attempt_ = now;
  is_refused_ = false;
  attempts_ = 0;
  asked_.clear();
  socket_.abandon();
}

void Contact::seek(TimePoint now) {
  if (seeker_.joinable()) take_attempt(now);
  if (end_ || socket_.is_open()) return;
  judge(now);
  if (end_ || seeker_.joinable() || now < next_attempt_) return;
  attempt_began_ = now;
  auto seeker = start_service_thread("dunlin-return",
                                     [this, session = Resumption{key_, session_.received()}] {
                                       ReturnAttempt attempt = try_to_return(plan_, session);
                                       const std::lock_guard lock(mutex_);
                                       attempt_ = std::move(attempt);
                                       wake_();
                                     });
  if (!seeker) {  // the host lacks threads; it may have some later
    DUNLIN_DEBUG("bootstrap: no return to the coordinator yet: {}", seeker.status().message());
    return count_attempt(now);
  }
  seeker_ = std::move(*seeker);
}

void Contact::count_attempt(TimePoint now) {
  ++attempts_;
  next_attempt_ = now + kConnectRetry;
}

std::optional<ReturnAttempt> Contact::end_of_attempt() {
  std::optional<ReturnAttempt> attempt;
  {
    const std::lock_guard lock(mutex_);
    attempt.swap(attempt_);
  }
  if (attempt) seeker_.join();
  return attempt;
}

// The coordinator has taken this rank back, and would wait for it.
void Contact::drop_attempt() {
  if (!seeker_.joinable()) return;
  auto attempt = end_of_attempt();
  if (attempt && attempt->connection) attempt->connection->socket.abandon();
}

void Contact::take_attempt(TimePoint now) {
  auto attempt = end_of_attempt();
  if (!attempt) return;
  count_attempt(now);
  if (attempt->connection) return resume(std::move(*attempt->connection), now);
  is_refused_ = attempt->is_refused;
  if (attempt->final) end_ = End{std::move(*attempt->final), true};
}

void Contact::resume(AuthenticatedSocket connection, TimePoint now) {
  if (const Status status = session_.acknowledge(connection.session.received); !status) {
    end_ = End{status, true};
    connection.socket.abandon();
    return;
  }
  DUNLIN_INFO("bootstrap: rank {} has a connection again after {:.1f} s", plan_.job.rank.value(),
              to_seconds(now - lost_at_));
  socket_ = std::move(connection.socket);
  passed_ = 0;
  beats_ = 0;
  heard_ = next_beat_ = now;
  contact_ = attempt_began_;
  if (const Status status = exchange(now); !status) lose(status, now);
}

bool Contact::is_coordinator_ended() const {
  if (coordinator_.state != ProcessWatch::State::kAlive) return false;
  pollfd entry{coordinator_.pidfd.get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// An attempt may hang for longer than kAttemptTime, when it looks up the host's name.
bool Contact::has_tried(TimePoint now) const {
  return attempts_ > 0 || (seeker_.joinable() && now - attempt_began_ >= kAttemptTime);
}

// Decides whether to go on seeking.
void Contact::judge(TimePoint now) {
  if (coordinator_.state == ProcessWatch::State::kAlive) {
    // It can see this process as well, and waits for it.
    if (is_coordinator_ended()) end_ = End{Status(Code::kUnavailable, lost_how_), false};
    return;
  }
  if (was_closed_ && is_refused_ && now - lost_at_ >= kConfirmTime) {
    end_ = End{Status(Code::kUnavailable, lost_how_), false};
  } else if (has_tried(now) && now - contact_ >= lease_) {
    end_ = End{Status(Code::kUnavailable,
                      fmt::format("this rank has been out of contact with the coordinator for "
                                  "{:.1f} s and is cut off, as the others may soon count it as "
                                  "dead ({})",
                                  to_seconds(now - contact_), lost_how_)),
               true};
  }
}

void Contact::append_to(std::vector<pollfd>& entries) const {
  const short events = socket_.has_unsent() ? POLLIN | POLLOUT : POLLIN;
  entries.push_back({socket_.fd(), events, 0});
  const bool is_watching = !end_ && !socket_.is_open() && coordinator_.pidfd.is_open();
  entries.push_back({is_watching ? coordinator_.pidfd.get() : -1, POLLIN, 0});
}

TimePoint Contact::next() const {
  if (end_) return TimePoint::max();
  if (socket_.is_open()) return next_beat_;
  // An attempt that is in progress wakes the owner.
  const TimePoint attempt = seeker_.joinable() ? TimePoint::max() : next_attempt_;
  return std::min({attempt, std::max(lost_at_ + kConfirmTime, last_turn_ + kConnectRetry),
                   last_turn_ + kConfirmTime});
}

}  // namespace dunlin::bootstrap
