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

const char* fate(PeerState state) {
  return state == PeerState::kLeft ? "has left" : "is dead";
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
      present_(members_.size()),
      heartbeat_(heartbeat),
      send_(std::move(send)),
      gathers_(size),
      fences_(
          size, [this](Rank to, const Message& message) { send_(to, message); },
          [this](Rank rank) { return !is_gone(rank); }) {
  for (int rank = 0; rank < size; ++rank) membership_.members.emplace_back(rank);
}

Status JobLedger::admit(Rank rank, TimePoint now, const ProcessId& process) {
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
  member.kernel = process.kernel();
  spaces_[member.kernel].insert(process.space);
  ++active_;
  return Status::ok();
}

Status JobLedger::receive(Rank from, const Message& message, TimePoint now) {
  Member& member = members_[from.index()];
  if (!is_present(member)) {  // it was declared dead while the message was on its way, or leaves
    const bool has_answer =
        message.type != MessageType::kCancel && message.type != MessageType::kHeartbeat;
    if (message.request != kNoRequest && has_answer) {
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
    case MessageType::kGather:
      gather(from, message, now);
      return Status::ok();
    case MessageType::kLeave:
      leave(from, message, now);
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
  const bool has_name = message.type != MessageType::kJoin && message.type != MessageType::kReform;
  requests_.open(from, {message.type, message.request, has_name ? message.text : "",
                        deadline_after(now, message.number), message.subject});
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
    case MessageType::kGather:
      settle_gather(message.text);
      if (const auto gone = gathers_.gone(message.text)) fail_gather(message.text, *gone);
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
  const auto* const open = requests_.find(from);
  if (open != nullptr && open->number == request) requests_.close(from);
}

void JobLedger::publish(Rank from, const Message& message) {
  const Status kept = keep(from, message);
  if (message.request != kNoRequest) {
    reply(from,
          {.code = kept.code(), .request = message.request, .text = std::string(kept.message())});
  } else if (kept.code() == Code::kResourceExhausted) {
    warn(from, kept);
  }
  settle_lookup(message.text);
}

void JobLedger::warn(Rank from, const Status& why) {
  if (!std::exchange(members_[from.index()].was_warned, true))
    DUNLIN_WARN("bootstrap: {}", why.message());
}

Status JobLedger::keep(Rank from, const Message& message) {
  if (values_.contains(message.text)) {
    return {Code::kAlreadyExists,
            fmt::format("the key '{}' has been published before", message.text)};
  }
  DUNLIN_TRY(charge(from, message));
  values_.emplace(message.text, message.value);
  return Status::ok();
}

Status JobLedger::charge(Rank from, const Message& message) {
  Member& member = members_[from.index()];
  const std::size_t most_keys = kMaxKeptKeys + kMaxKeptKeysPerPeer * members_.size();
  const std::size_t most_bytes = kMaxKeptBytes + kMaxKeptBytesPerPeer * members_.size();
  const std::size_t bytes = member.kept_bytes + message.text.size() + message.value.size() +
                            message.ranks.size() * sizeof(Rank) + kKeptEntryBytes;
  if (member.kept_keys == most_keys || bytes > most_bytes) {
    return {Code::kResourceExhausted,
            fmt::format("rank {} has published {} keys with {}; the coordinator keeps no more than "
                        "{} keys and {} of one rank of this job",
                        from.value(), member.kept_keys,
                        format_bytes(static_cast<double>(member.kept_bytes)), most_keys,
                        format_bytes(static_cast<double>(most_bytes)))};
  }
  ++member.kept_keys;
  member.kept_bytes = bytes;
  return Status::ok();
}

Status JobLedger::contribute(Rank from, const Message& message) {
  if (gathers_.has(from, message.text)) return gathers_.add(from, message);
  Member& member = members_[from.index()];
  const auto keys_before = member.kept_keys;
  const auto bytes_before = member.kept_bytes;
  DUNLIN_TRY(charge(from, message));
  Status added = gathers_.add(from, message);
  if (!added) {
    member.kept_keys = keys_before;
    member.kept_bytes = bytes_before;
  }
  return added;
}

void JobLedger::gather(Rank from, const Message& message, TimePoint now) {
  const Status added = contribute(from, message);
  if (message.request == kNoRequest) {
    if (added) return settle_gather(message.text);
    return warn(from, added);
  }
  if (added) {
    (void)open_request(from, message, now);  // it cannot fail for a request of this type
  } else {
    reply(from,
          {.code = added.code(), .request = message.request, .text = std::string(added.message())});
  }
}

// The notices go out before the reply, after which the process may end. So the monitors that watch
// the process know by then that it has left. Where a rank waits for something that the departure
// settles, that answer follows the notice as well.
void JobLedger::leave(Rank from, const Message& message, TimePoint now) {
  departures_.emplace_back(from, message.request);
  remove(from, PeerState::kLeft);
  settle_end(from, "it has shut down");
  tell_due_departures(now);
}

void JobLedger::tell_due_departures(TimePoint now) {
  if (now >= next_departures_) tell_departures();
  if (!std::exchange(has_told_departures_, false)) return;
  const auto size = static_cast<std::int64_t>(members_.size());
  next_departures_ = now + std::min<Duration>(size * kDepartureInterval, kLongestDeparture);
}

bool JobLedger::tell_departures() {
  if (departures_.empty()) return false;
  has_told_departures_ = true;
  const auto told = std::exchange(departures_, {});
  Message notice{.type = MessageType::kNotice, .state = PeerState::kLeft};
  for (const auto& [rank, request] : told) notice.ranks.push_back(rank);
  broadcast(notice);
  for (const auto& [rank, request] : told) reply(rank, {.request = request});
  return true;
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

void JobLedger::declare_dead(const std::vector<std::pair<Rank, std::string>>& deaths) {
  std::vector<std::pair<Rank, std::string>> news;
  for (const auto& [rank, reason] : deaths) {
    if (!is_present(members_[rank.index()])) continue;
    remove(rank, PeerState::kDead);
    news.emplace_back(rank, reason);
  }
  for (const auto& [rank, reason] : news) {
    const Message notice{
        .type = MessageType::kNotice, .state = PeerState::kDead, .subject = rank, .text = reason};
    broadcast(notice);
    // It may live all the same. Then it learns that it has no part in the job any more.
    if (has_joined(rank)) send_(rank, notice);
  }
  for (const auto& [rank, reason] : news) settle_end(rank, reason);
}

void JobLedger::remove(Rank rank, PeerState state) {
  Member& member = members_[rank.index()];
  member.state = state;
  requests_.close(rank);
  --present_;
  if (member.has_joined) --active_;
  gathers_.note_gone(rank);
  if (state == PeerState::kDead) dead_.push_back(rank);
}

void JobLedger::settle_end(Rank rank, const std::string& reason) {
  fences_.note_gone();
  if (!has_started_) {
    fail_start(Code::kPeerDead, fmt::format("rank {} ended before all ranks had joined ({}: {})",
                                            rank.value(), to_string(state(rank)), reason));
    return;
  }
  for (const std::string& name : requests_.names(MessageType::kBarrier)) settle_barrier(name);
  settle_lookups_from(rank);
  for (const std::string& name : requests_.names(MessageType::kGather)) {
    if (const auto gone = gathers_.gone(name)) fail_gather(name, *gone);
  }
  settle_reform();
}

void JobLedger::change_state(Rank rank, PeerState state, const std::string& reason) {
  members_[rank.index()].state = state;
  broadcast({.type = MessageType::kNotice, .state = state, .subject = rank, .text = reason});
}

void JobLedger::broadcast(const Message& notice) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Rank to(static_cast<int>(i));
    if (to != notice.subject && members_[i].has_joined && is_present(members_[i]))
      send_(to, notice);
  }
}

void JobLedger::fail_start(Code code, const std::string& reason) {
  if (end_) return;
  end_ = Status(code, reason);
  for (const Rank rank : requests_.all()) fail(rank, code, reason);
}

void JobLedger::tick(TimePoint now) {
  for (const Rank rank : requests_.due(now)) expire(rank);
  tell_due_departures(now);
  if (heartbeat_ > Duration::zero() && now >= next_look_) find_stalled(now);
  last_tick_ = now;
}

void JobLedger::find_stalled(TimePoint now) {
  next_look_ = now + heartbeat_ / kLooksPerHeartbeat;
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
  if (!departures_.empty()) next = std::min(next, next_departures_);
  return requests_.next(next);
}

// Answers the request of `rank`, whose deadline has passed.
void JobLedger::expire(Rank rank) {
  const RequestBook::Request* const open = requests_.find(rank);
  if (open == nullptr) return;  // the expiry of another one has answered it
  const RequestBook::Request request = *open;
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
      const auto late = request.type == MessageType::kGather ? gathers_.missing(request.name)
                                                             : missing(request.type, request.name);
      fail(rank, Code::kDeadlineExceeded, "still missing: " + list_ranks(late),
           late.empty() ? Rank() : late.front());
    }
  }
}

void JobLedger::settle_join() {
  if (!has_started_ && !have_all_asked(MessageType::kJoin, "")) return;
  has_started_ = true;
  for (const Rank rank : requests_.waiting(MessageType::kJoin, "")) {
    const auto& spaces = spaces_[members_[rank.index()].kernel];
    reply(rank, {.value = Bytes(spaces.size() > 1 ? 1 : 0)});
  }
}

void JobLedger::settle_lookup(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  for (const Rank rank : requests_.waiting(MessageType::kLookup, key))
    reply(rank, {.value = found->second});
}

// What a rank that is gone has not published will never be.
void JobLedger::settle_lookups_from(Rank gone) {
  for (const Rank rank : requests_.all()) {
    const auto* const request = requests_.find(rank);
    if (request->type != MessageType::kLookup || request->publisher != gone) continue;
    tell_departures();
    fail(rank, Code::kPeerDead,
         fmt::format("rank {} has not published it and {}", gone.value(), fate(state(gone))), gone);
  }
}

void JobLedger::settle_gather(const std::string& name) {
  const std::shared_ptr<const Bytes> records = gathers_.records(name);
  if (records == nullptr) return;
  for (const Rank rank : requests_.waiting(MessageType::kGather, name))
    reply(rank, {.shared_value = records});
}

void JobLedger::fail_gather(const std::string& name, Rank gone) {
  tell_departures();
  for (const Rank rank : requests_.waiting(MessageType::kGather, name)) {
    fail(rank, Code::kPeerDead,
         fmt::format("rank {} has not called it and {}", gone.value(), fate(state(gone))), gone);
  }
}

void JobLedger::settle_barrier(const std::string& name) {
  if (dead_.empty() && !have_all_asked(MessageType::kBarrier, name)) return;
  tell_departures();
  for (const Rank rank : requests_.waiting(MessageType::kBarrier, name)) {
    if (dead_.empty()) {
      reply(rank, {});
    } else {
      fail(rank, Code::kPeerDead, "these ranks are dead: " + list_ranks(dead_), dead_.front());
    }
  }
}

void JobLedger::settle_reform() {
  const auto survivors = requests_.waiting(MessageType::kReform, "");
  if (survivors.empty() || !have_all_asked(MessageType::kReform, "")) return;
  tell_departures();
  membership_ = {membership_.epoch + 1, survivors};
  dead_.clear();
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
    const auto* const request = requests_.find(rank);
    const bool is_here = request != nullptr && request->type == type && request->name == name;
    if (is_present(members_[rank.index()]) && !is_here) result.push_back(rank);
  }
  return result;
}

void JobLedger::reply(Rank to, Message message) {
  message.type = MessageType::kReply;
  const auto* const open = requests_.find(to);
  if (message.request == kNoRequest && open != nullptr) {
    message.request = open->number;
    requests_.close(to);
  }
  send_(to, message);
}

void JobLedger::fail(Rank to, Code code, std::string why, Rank subject) {
  reply(to, {.code = code, .subject = subject, .text = std::move(why)});
}

}  // namespace dunlin::bootstrap
