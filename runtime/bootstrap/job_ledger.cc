#include "runtime/bootstrap/job_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/log.h"
#include "runtime/units.h"

namespace dunlin::bootstrap {
namespace {

// The longest timeout. Adding it to a time does not overflow.
constexpr Duration kLongest = std::chrono::hours(24 * 365);
// A warning about a member is cut after so many bytes, as it may contain a name that the member has
// chosen.
constexpr std::size_t kMostWarnedBytes = 500;

TimePoint deadline_after(TimePoint now, std::uint64_t timeout_ns) {
  const auto longest = static_cast<std::uint64_t>(kLongest.count());
  return now + Duration(static_cast<std::int64_t>(std::min(timeout_ns, longest)));
}

// The names of requests to join and to change the members, which have none of their own: those of
// arrivals, processes that joined the running job and are no members yet, count separately.
constexpr const char* kOfMembers = "";
constexpr const char* kOfArrivals = "arrivals";

constexpr const char* kNoMembers = "no member of this job is left";
constexpr const char* kAtEnd = "the members of this job are at their end and take nobody in";

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

JobLedger::JobLedger(Places places, Duration heartbeat, Send send)
    : heartbeat_(heartbeat),
      send_(std::move(send)),
      roster_(places.size, places.founders, heartbeat,
              [this](Rank to, const Message& message) { send_(to, message); }),
      kernels_(static_cast<std::size_t>(places.size)),
      was_warned_(static_cast<std::size_t>(places.size)),
      allowance_(places.size),
      values_(allowance_),
      gathers_(places.size),
      releases_(places.size),
      departures_(places.size),
      book_(places.founders, [this](Rank to, const Message& message) { send_(to, message); }),
      fences_(
          places.size, [this](Rank to, const Message& message) { send_(to, message); },
          [this](Rank rank) { return !is_gone(rank); }) {}

Status JobLedger::admit(Rank rank, TimePoint now, const ProcessId& process) {
  if (end_) return {Code::kUnavailable, "the job failed to start: " + std::string(end_->message())};
  if (book_.present().empty()) return {Code::kUnavailable, kNoMembers};
  DUNLIN_TRY(roster_.join(rank, now));
  kernels_[rank.index()] = std::string(process.kernel());
  spaces_[kernels_[rank.index()]].insert(process.space);
  return Status::ok();
}

Status JobLedger::receive(Rank from, const Message& message, TimePoint now) {
  // A rank may have been declared dead while its message was on the way.
  if (!roster_.hear(from, now)) {
    const bool has_answer =
        message.type != MessageType::kCancel && message.type != MessageType::kHeartbeat;
    if (message.request != kNoRequest && has_answer) {
      reply(from, {.code = Code::kClosed,
                   .request = message.request,
                   .text = "the other ranks count this rank as gone"});
    }
    return Status::ok();
  }
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
    case MessageType::kRelease:
      return release(from, message);
    case MessageType::kMail:
      return forward_mail(from, message);
    case MessageType::kGather:
      gather(from, message, now);
      return Status::ok();
    case MessageType::kLeave:
      leave(from, message, now);
      return Status::ok();
    case MessageType::kRetire:
      book_.retire(from);
      return Status::ok();
    case MessageType::kStep:
      DUNLIN_TRY(book_.note_step(from, message));
      settle_reform();
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
  const bool is_member = book_.is_member(from);
  const bool has_name = message.type != MessageType::kJoin && message.type != MessageType::kReform;
  const TimePoint deadline = deadline_after(now, message.number);
  if (message.type == MessageType::kLookup) {
    requests_.open(from, LookupBook::request_of(message, deadline));
  } else {
    std::string name = has_name ? message.text : is_member ? kOfMembers : kOfArrivals;
    requests_.open(from, {message.type, message.request, std::move(name), deadline});
  }
  if (end_) {
    fail(from, end_->code(), std::string(end_->message()));
    return Status::ok();
  }
  switch (message.type) {
    case MessageType::kJoin:
      settle_join();
      break;
    case MessageType::kLookup:
      settle_lookup(requests_.find(from)->name);
      if (const auto gone = lookups_.lost(from, [this](Rank rank) { return is_gone(rank); }))
        fail_lookup(from, *gone);
      break;
    case MessageType::kGather:
      settle_gather(message.text);
      if (const auto gone = gathers_.gone(message.text)) fail_gather(message.text, *gone);
      break;
    case MessageType::kBarrier:
      if (is_member) {
        settle_barrier(message.text);
      } else {
        fail(from, Code::kInvalidArgument,
             fmt::format("rank {} is no member yet: it calls reform() first", from.value()));
      }
      break;
    default:
      if (!is_member && has_started_) book_.ask_steps();
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
  const Status kept = values_.keep(from, message);
  if (message.request != kNoRequest) {
    reply(from,
          {.code = kept.code(), .request = message.request, .text = std::string(kept.message())});
  } else if (kept.code() == Code::kResourceExhausted) {
    warn(from, kept);
  }
  settle_lookup(message.text);
}

void JobLedger::warn(Rank from, const Status& why) {
  if (was_warned_[from.index()]) return;
  was_warned_[from.index()] = true;
  DUNLIN_WARN("bootstrap: {}", printable(why.message().substr(0, kMostWarnedBytes)));
}

Status JobLedger::contribute(Rank from, const Message& message) {
  if (gathers_.has(from, message.text)) return gathers_.add(from, message);
  const std::size_t bytes = Allowance::bytes_of(message);
  DUNLIN_TRY(allowance_.charge(from, bytes));
  Status added = gathers_.add(from, message);
  if (!added) allowance_.refund(from, bytes);
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

Status JobLedger::release(Rank from, const Message& message) {
  const std::string& topic = message.text;
  if (topic.empty() || !message.value.empty() || !message.ranks.empty())
    return {Code::kCorrupted, fmt::format("rank {} sent a malformed release", from.value())};
  const Status noted = releases_.note(from, topic, message.number);
  if (noted.is_busy()) return Status::ok();
  if (!noted) {
    warn(from, noted);
    return Status::ok();
  }
  values_.forget(topic);
  const GatherBook::Forgotten gathered = gathers_.forget(topic);
  for (const Rank contributor : gathered.contributors)
    allowance_.refund(contributor, gathered.bytes);
  return Status::ok();
}

// The notices go out before the reply, after which the process may end. So the monitors that watch
// the process know by then that it has left. Where a rank waits for something that the departure
// settles, that answer follows the notice as well.
void JobLedger::leave(Rank from, const Message& message, TimePoint now) {
  departures_.add(from, message.request);
  remove(from, PeerState::kLeft);
  settle_end(from, "it has shut down");
  tell_due_departures(now);
}

void JobLedger::tell_due_departures(TimePoint now) {
  if (departures_.is_due(now)) tell_departures();
  departures_.pace(now);
}

bool JobLedger::tell_departures() {
  const auto told = departures_.take();
  if (told.empty()) return false;
  Message notice{.type = MessageType::kNotice, .state = PeerState::kLeft};
  for (const auto& [rank, request] : told) notice.ranks.push_back(rank);
  roster_.broadcast(notice);
  for (const auto& [rank, request] : told) reply(rank, {.request = request});
  return true;
}

Status JobLedger::forward_mail(Rank from, const Message& mail) {
  const Rank to = mail.subject;
  if (!roster_.exists(to) || mail.value.size() > Mail::kTopicBytes + Mail::kLargestMessage) {
    return {Code::kCorrupted, fmt::format("rank {} sent mail of {} bytes to rank {}", from.value(),
                                          mail.value.size(), to.value())};
  }
  if (roster_.is_reachable(to))
    send_(to, {.type = MessageType::kMail, .subject = from, .value = mail.value});
  return Status::ok();
}

void JobLedger::declare_dead(const std::vector<std::pair<Rank, std::string>>& deaths) {
  std::vector<std::pair<Rank, std::string>> news;
  for (const auto& [rank, reason] : deaths) {
    if (!roster_.is_present(rank)) continue;
    remove(rank, PeerState::kDead);
    news.emplace_back(rank, reason);
  }
  for (const auto& [rank, reason] : news) {
    const Message notice{
        .type = MessageType::kNotice, .state = PeerState::kDead, .subject = rank, .text = reason};
    roster_.broadcast(notice);
    // It may live all the same. Then it learns that it has no part in the job any more.
    if (has_joined(rank)) send_(rank, notice);
  }
  for (const auto& [rank, reason] : news) settle_end(rank, reason);
}

void JobLedger::remove(Rank rank, PeerState state) {
  roster_.remove(rank, state);
  requests_.close(rank);
  gathers_.note_gone(rank);
  book_.note_gone(rank, state);
}

void JobLedger::settle_end(Rank rank, const std::string& reason) {
  fences_.note_gone();
  if (!has_started_) {
    if (!book_.is_member(rank)) return;
    fail_start(Code::kPeerDead, fmt::format("rank {} ended before all ranks had joined ({}: {})",
                                            rank.value(), to_string(roster_.state(rank)), reason));
    return;
  }
  for (const std::string& name : requests_.names(MessageType::kBarrier)) settle_barrier(name);
  for (const Rank asker : requests_.all()) {
    if (lookups_.lost(asker, [rank](Rank each) { return each == rank; })) fail_lookup(asker, rank);
  }
  for (const std::string& name : requests_.names(MessageType::kGather)) {
    if (const auto gone = gathers_.gone(name)) fail_gather(name, *gone);
  }
  settle_reform();
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
  roster_.find_stalled(now, now - last_tick_ > 2 * heartbeat_);
}

TimePoint JobLedger::next_tick(TimePoint now) const {
  TimePoint next = now + (heartbeat_ > Duration::zero() ? heartbeat_ : kLongest);
  if (!departures_.is_empty()) next = std::min(next, departures_.next());
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
      if (!book_.is_member(rank)) {
        fail(rank, Code::kDeadlineExceeded,
             "the job to join has not started; still missing: " + list_ranks(late));
        break;
      }
      // When the first rank gives up, the job cannot start any more.
      fail_start(Code::kDeadlineExceeded,
                 late.empty() ? "not all ranks have asked to start"
                              : fmt::format("{} of {} ranks have not joined in time: {}",
                                            late.size(), roster_.founders(), list_ranks(late)));
      break;
    }
    case MessageType::kLookup:
      fail(rank, Code::kDeadlineExceeded, fmt::format("no rank has published '{}'", request.name),
           request.publishers.empty() ? Rank() : request.publishers[request.place]);
      break;
    default: {
      const auto late = request.type == MessageType::kGather ? gathers_.missing(request.name)
                        : request.type == MessageType::kReform
                            ? missing(request.type, kOfMembers)
                            : missing(request.type, request.name);
      fail(rank, Code::kDeadlineExceeded, "still missing: " + list_ranks(late),
           late.empty() ? Rank() : late.front());
    }
  }
}

void JobLedger::settle_join() {
  if (!has_started_ && !have_all_asked(MessageType::kJoin, kOfMembers)) return;
  has_started_ = true;
  for (const char* const whose : {kOfMembers, kOfArrivals}) {
    for (const Rank rank : requests_.waiting(MessageType::kJoin, whose)) {
      roster_.tell_states(rank);
      const auto& spaces = spaces_[kernels_[rank.index()]];
      Message answer{.value = Bytes(spaces.size() > 1 ? 1 : 0)};
      if (whose == kOfArrivals) {
        answer.number = book_.membership().epoch;
        answer.ranks = book_.membership().members;
      }
      reply(rank, std::move(answer));
    }
  }
}

void JobLedger::settle_lookup(const std::string& key) {
  for (const Rank asker : requests_.waiting(MessageType::kLookup, key)) {
    if (auto found = lookups_.answer(asker)) reply(asker, std::move(*found));
  }
}

// What a rank that is gone has not published will never be.
void JobLedger::fail_lookup(Rank asker, Rank gone) {
  tell_departures();
  fail(asker, Code::kPeerDead,
       fmt::format("rank {} has not published it and {}", gone.value(), fate(roster_.state(gone))),
       gone);
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
         fmt::format("rank {} has not called it and {}", gone.value(), fate(roster_.state(gone))),
         gone);
  }
}

void JobLedger::settle_barrier(const std::string& name) {
  const std::vector<Rank>& dead = book_.dead();
  if (dead.empty() && !have_all_asked(MessageType::kBarrier, name)) return;
  tell_departures();
  for (const Rank rank : requests_.waiting(MessageType::kBarrier, name)) {
    if (dead.empty()) {
      reply(rank, {});
    } else {
      fail(rank, Code::kPeerDead, "these ranks are dead: " + list_ranks(dead), dead.front());
    }
  }
}

void JobLedger::settle_reform() {
  if (book_.present().empty() || book_.is_at_end()) {
    const char* const why = book_.present().empty() ? kNoMembers : kAtEnd;
    for (const Rank rank : requests_.waiting(MessageType::kReform, kOfArrivals))
      fail(rank, Code::kUnavailable, why);
    if (book_.present().empty()) return;
  }
  if (!have_all_asked(MessageType::kReform, kOfMembers)) return;
  tell_departures();
  std::vector<Rank> members = requests_.waiting(MessageType::kReform, kOfMembers);
  for (const Rank rank : requests_.waiting(MessageType::kReform, kOfArrivals))
    members.push_back(rank);
  std::ranges::sort(members);
  book_.change(members);
  for (const Rank rank : members)
    reply(rank, {.number = book_.membership().epoch, .ranks = members});
  book_.ask_again();
}

std::vector<Rank> JobLedger::not_joined() const {
  std::vector<Rank> result;
  for (const Rank rank : book_.membership().members) {
    if (!has_joined(rank)) result.push_back(rank);
  }
  return result;
}

std::vector<Rank> JobLedger::missing(MessageType type, const std::string& name) const {
  std::vector<Rank> result;
  for (const Rank rank : book_.present()) {
    const auto* const request = requests_.find(rank);
    const bool is_here = request != nullptr && request->type == type && request->name == name;
    if (!is_here) result.push_back(rank);
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
