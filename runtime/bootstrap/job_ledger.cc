#include "runtime/bootstrap/job_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bootstrap/constants.h"
#include "runtime/log.h"
#include "runtime/units.h"

namespace dunlin::bootstrap {
namespace {

// The longest timeout. Adding it to a time does not overflow.
constexpr Duration kLongest = std::chrono::hours(24 * 365);

TimePoint deadline_after(TimePoint now, std::uint64_t timeout_ns) {
  const auto longest = static_cast<std::uint64_t>(kLongest.count());
  return now + Duration(static_cast<std::int64_t>(std::min(timeout_ns, longest)));
}

}  // namespace

std::string list_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t kListed = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kListed); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i].value());
  }
  if (ranks.size() > kListed) text += fmt::format(" and {} more", ranks.size() - kListed);
  return text;
}

JobLedger::JobLedger(int size, Duration heartbeat, Send send)
    : members_(static_cast<std::size_t>(size)),
      heartbeat_(heartbeat),
      send_(std::move(send)),
      fences_(
          size, [this](Rank to, const Message& message) { send_(to, message); },
          [this](Rank rank) { return !is_gone(rank); }) {
  for (int rank = 0; rank < size; ++rank) membership_.members.emplace_back(rank);
}

Status JobLedger::admit(Rank rank, TimePoint now) {
  if (rank.value() < 0 || rank.index() >= members_.size()) {
    return {Code::kOutOfRange,
            fmt::format("rank {} is outside a job of {} ranks", rank.value(), members_.size())};
  }
  if (end_) return {Code::kUnavailable, "the job failed to start: " + std::string(end_->message())};
  Member& member = members_[rank.index()];
  if (member.has_joined || member.state != PeerState::kAlive) {
    return {Code::kAlreadyExists, fmt::format("rank {} has joined before and is {}", rank.value(),
                                              to_string(member.state))};
  }
  member.has_joined = true;
  member.last_heard = now;
  return Status::ok();
}

Status JobLedger::receive(Rank from, const Message& message, TimePoint now) {
  Member& member = members_[from.index()];
  if (!is_present(member)) {  // it was declared dead while the message was on its way
    if (message.request != kNoRequest && message.type != MessageType::kCancel) {
      reply(from, {.code = Code::kClosed,
                   .request = message.request,
                   .text = "the other ranks count this rank as gone"});
    }
    return Status::ok();
  }
  member.last_heard = now;
  if (member.state == PeerState::kStalled)
    change_state(from, PeerState::kAlive, "heard from again");
  switch (message.type) {
    case MessageType::kHeartbeat:
    case MessageType::kTestimony:  // the coordinator has heard it
      return Status::ok();
    case MessageType::kCancel:
      cancel(from, message.request);
      return Status::ok();
    case MessageType::kFence:
      return fences_.ask(from, message);
    case MessageType::kRevoked:
      return fences_.confirm(from, message);
    case MessageType::kPublish:
      publish(from, message);
      return Status::ok();
    case MessageType::kMail:
      return forward_mail(from, message);
    case MessageType::kLeave:
      // The notices go out before the reply, after which the process may end. So the monitors that
      // watch the process know by then that it has left.
      remove(from, PeerState::kLeft, "it has shut down");
      reply(from, {.request = message.request});
      return Status::ok();
    case MessageType::kJoin:
    case MessageType::kLookup:
    case MessageType::kBarrier:
    case MessageType::kReform:
      return open_request(from, message, now);
    default:
      return {Code::kCorrupted, fmt::format("rank {} sent a message of type {}", from.value(),
                                            static_cast<int>(message.type))};
  }
}

Status JobLedger::open_request(Rank from, const Message& message, TimePoint now) {
  const bool has_name =
      message.type == MessageType::kLookup || message.type == MessageType::kBarrier;
  members_[from.index()].request =
      Request{message.type, message.request, has_name ? message.text : "",
              deadline_after(now, message.number), message.subject};
  if (end_) {
    fail(from, end_->code(), std::string(end_->message()));
    return Status::ok();
  }
  switch (message.type) {
    case MessageType::kJoin:
      settle_join();
      break;
    case MessageType::kLookup:
      settle_lookup(message.text);
      if (is_gone(message.subject)) settle_lookups_from(message.subject);
      break;
    case MessageType::kBarrier:
      settle_barrier(message.text);
      break;
    default:
      settle_reform();
      break;
  }
  return Status::ok();
}

void JobLedger::cancel(Rank from, std::uint64_t request) {
  auto& open = members_[from.index()].request;
  if (open && open->number == request) open.reset();
}

void JobLedger::publish(Rank from, const Message& message) {
  const Status kept = keep(from, message);
  if (message.request != kNoRequest) {
    reply(from,
          {.code = kept.code(), .request = message.request, .text = std::string(kept.message())});
  } else if (kept.code() == Code::kResourceExhausted &&
             !std::exchange(members_[from.index()].was_warned, true)) {
    DUNLIN_WARN("bootstrap: {}", kept.message());  // the rank itself waits for no answer
  }
  settle_lookup(message.text);
}

Status JobLedger::keep(Rank from, const Message& message) {
  if (values_.contains(message.text)) {
    return {Code::kAlreadyExists,
            fmt::format("the key '{}' has been published before", message.text)};
  }
  Member& member = members_[from.index()];
  const std::size_t most_keys = kMaxKeptKeys + kMaxKeptKeysPerPeer * members_.size();
  const std::size_t most_bytes = kMaxKeptBytes + kMaxKeptBytesPerPeer * members_.size();
  const std::size_t bytes =
      member.kept_bytes + message.text.size() + message.value.size() + kKeptEntryBytes;
  if (member.kept_keys == most_keys || bytes > most_bytes) {
    return {Code::kResourceExhausted,
            fmt::format("rank {} has published {} keys with {}; the coordinator keeps no more than "
                        "{} keys and {} of one rank of this job",
                        from.value(), member.kept_keys,
                        format_bytes(static_cast<double>(member.kept_bytes)), most_keys,
                        format_bytes(static_cast<double>(most_bytes)))};
  }
  values_.emplace(message.text, message.value);
  ++member.kept_keys;
  member.kept_bytes = bytes;
  return Status::ok();
}

Status JobLedger::forward_mail(Rank from, const Message& mail) {
  const int to = mail.subject.value();
  if (to < 0 || static_cast<std::size_t>(to) >= members_.size() ||
      mail.value.size() > Mail::kTopicBytes + Mail::kLargestMessage) {
    return {Code::kCorrupted, fmt::format("rank {} sent mail of {} bytes to rank {}", from.value(),
                                          mail.value.size(), to)};
  }
  const Member& member = members_[mail.subject.index()];
  if (member.has_joined && is_present(member))
    send_(mail.subject, {.type = MessageType::kMail, .subject = from, .value = mail.value});
  return Status::ok();
}

void JobLedger::declare_dead(Rank rank, const std::string& reason) {
  if (is_present(members_[rank.index()])) remove(rank, PeerState::kDead, reason);
}

void JobLedger::remove(Rank rank, PeerState state, const std::string& reason) {
  change_state(rank, state, reason);
  members_[rank.index()].request.reset();
  if (state == PeerState::kDead && members_[rank.index()].has_joined) {
    // It may live all the same. Then it learns that it has no part in the job any more.
    send_(rank, {.type = MessageType::kNotice, .state = state, .subject = rank, .text = reason});
  }
  fences_.note_gone();
  if (!has_started_) {
    fail_start(Code::kPeerDead, fmt::format("rank {} ended before all ranks had joined ({}: {})",
                                            rank.value(), to_string(state), reason));
    return;
  }
  for (const Member& member : members_) {
    if (member.request && member.request->type == MessageType::kBarrier) {
      settle_barrier(std::string(member.request->name));
    }
  }
  settle_lookups_from(rank);
  settle_reform();
}

void JobLedger::change_state(Rank rank, PeerState state, const std::string& reason) {
  members_[rank.index()].state = state;
  const Message notice{
      .type = MessageType::kNotice, .state = state, .subject = rank, .text = reason};
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Rank to(static_cast<int>(i));
    if (to != rank && members_[i].has_joined && is_present(members_[i])) send_(to, notice);
  }
}

void JobLedger::fail_start(Code code, const std::string& reason) {
  if (end_) return;
  end_ = Status(code, reason);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].request) fail(Rank(static_cast<int>(i)), code, reason);
  }
}

void JobLedger::tick(TimePoint now) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto& request = members_[i].request;
    if (request && request->deadline <= now) expire(Rank(static_cast<int>(i)));
  }
  if (heartbeat_ > Duration::zero()) find_stalled(now);
  last_tick_ = now;
}

void JobLedger::find_stalled(TimePoint now) {
  const bool was_asleep = now - last_tick_ > 2 * heartbeat_;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (!member.has_joined || member.state != PeerState::kAlive) continue;
    // When the coordinator itself has not run, heartbeats may be waiting to be read.
    if (was_asleep) member.last_heard = now;
    const Duration silence = now - member.last_heard;
    if (silence < kStallPeriods * heartbeat_) continue;
    change_state(Rank(static_cast<int>(i)), PeerState::kStalled,
                 fmt::format("no heartbeat for {:.1f} s", to_seconds(silence)));
  }
}

TimePoint JobLedger::next_tick(TimePoint now) const {
  TimePoint next = now + (heartbeat_ > Duration::zero() ? heartbeat_ : kLongest);
  for (const Member& member : members_) {
    if (member.request) next = std::min(next, member.request->deadline);
  }
  return next;
}

// Answers the request of `rank`, whose deadline has passed.
void JobLedger::expire(Rank rank) {
  const Request request = *members_[rank.index()].request;
  switch (request.type) {
    case MessageType::kJoin: {
      const auto late = not_joined();
      // When the first rank gives up, the job cannot start any more.
      fail_start(Code::kDeadlineExceeded,
                 late.empty() ? "not all ranks have asked to start"
                              : fmt::format("{} of {} ranks have not joined in time: {}",
                                            late.size(), members_.size(), list_ranks(late)));
      break;
    }
    case MessageType::kLookup:
      fail(rank, Code::kDeadlineExceeded, fmt::format("no rank has published '{}'", request.name));
      break;
    default: {
      const auto late = missing(request.type, request.name);
      fail(rank, Code::kDeadlineExceeded, "still missing: " + list_ranks(late),
           late.empty() ? Rank() : late.front());
    }
  }
}

void JobLedger::settle_join() {
  if (!has_started_ && !missing(MessageType::kJoin, "").empty()) return;
  has_started_ = true;
  for (const Rank rank : waiting(MessageType::kJoin, "")) reply(rank, {});
}

void JobLedger::settle_lookup(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  for (const Rank rank : waiting(MessageType::kLookup, key)) reply(rank, {.value = found->second});
}

// What a rank that is gone has not published will never be.
void JobLedger::settle_lookups_from(Rank gone) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto& request = members_[i].request;
    if (!request || request->type != MessageType::kLookup || request->publisher != gone) continue;
    fail(
        Rank(static_cast<int>(i)), Code::kPeerDead,
        fmt::format("rank {} has not published it and is {}", gone.value(), to_string(state(gone))),
        gone);
  }
}

void JobLedger::settle_barrier(const std::string& name) {
  const auto present = waiting(MessageType::kBarrier, name);
  std::vector<Rank> dead;
  for (const Rank rank : membership_.members) {
    if (state(rank) == PeerState::kDead) dead.push_back(rank);
  }
  if (!dead.empty()) {
    for (const Rank rank : present) {
      fail(rank, Code::kPeerDead, "these ranks are dead: " + list_ranks(dead), dead.front());
    }
  } else if (missing(MessageType::kBarrier, name).empty()) {
    for (const Rank rank : present) reply(rank, {});
  }
}

void JobLedger::settle_reform() {
  const auto survivors = waiting(MessageType::kReform, "");
  if (survivors.empty() || !missing(MessageType::kReform, "").empty()) return;
  membership_ = {membership_.epoch + 1, survivors};
  for (const Rank rank : survivors) {
    reply(rank, {.number = membership_.epoch, .ranks = survivors});
  }
}

bool JobLedger::is_present(const Member& member) const {
  return member.state == PeerState::kAlive || member.state == PeerState::kStalled;
}

bool JobLedger::is_gone(Rank rank) const {
  return rank.value() >= 0 && rank.index() < members_.size() && !is_present(members_[rank.index()]);
}

int JobLedger::active() const {
  return static_cast<int>(std::count_if(
      members_.begin(), members_.end(),
      [this](const Member& member) { return member.has_joined && is_present(member); }));
}

std::vector<Rank> JobLedger::not_joined() const {
  std::vector<Rank> result;
  for (const Rank rank : membership_.members) {
    if (!has_joined(rank)) result.push_back(rank);
  }
  return result;
}

std::vector<Rank> JobLedger::missing(MessageType type, const std::string& name) const {
  std::vector<Rank> result;
  for (const Rank rank : membership_.members) {
    const Member& member = members_[rank.index()];
    const bool is_here =
        member.request && member.request->type == type && member.request->name == name;
    if (is_present(member) && !is_here) result.push_back(rank);
  }
  return result;
}

std::vector<Rank> JobLedger::waiting(MessageType type, const std::string& name) const {
  std::vector<Rank> result;
  for (const Rank rank : membership_.members) {
    const auto& request = members_[rank.index()].request;
    if (request && request->type == type && request->name == name) result.push_back(rank);
  }
  return result;
}

void JobLedger::reply(Rank to, Message message) {
  auto& request = members_[to.index()].request;
  message.type = MessageType::kReply;
  if (message.request == kNoRequest && request) {
    message.request = request->number;
    request.reset();
  }
  send_(to, message);
}

void JobLedger::fail(Rank to, Code code, std::string why, Rank subject) {
  reply(to, {.code = code, .subject = subject, .text = std::move(why)});
}

}  // namespace dunlin::bootstrap
