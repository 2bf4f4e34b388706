#include "runtime/bootstrap/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/fnv.h"
#include "runtime/topology.h"
#include "runtime/within.h"

namespace dunlin::bootstrap {
namespace {

Status check_name(std::string_view what, std::string_view name) {
  if (!name.empty() && name.size() <= kMaxTextBytes) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("{} of {} bytes: 1 to {} are allowed", what, name.size(), kMaxTextBytes)};
}

Status check_value(std::string_view key, std::span<const std::byte> value) {
  DUNLIN_TRY(check_name("a key", key));
  if (value.size() <= kMaxValueBytes) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("the value of '{}' has {} bytes, {} are allowed", key,
                                              value.size(), kMaxValueBytes)};
}

JobInfo with_founders(JobInfo job) {
  if (job.founders == 0) job.founders = job.size;
  return job;
}

std::string seconds(Duration timeout) {
  return fmt::format("{:g} s", to_seconds(timeout));
}

}  // namespace

BootstrapClient::BootstrapClient(JobInfo job, const JobKey& key)
    : job_(with_founders(std::move(job))),
      peers_(job_.size, job_.founders),
      mail_([this](Rank to, Bytes text) {
        transmit({.type = MessageType::kMail, .subject = to, .value = std::move(text)});
      }),
      fences_(
          {.ask =
               [this](std::uint64_t number, Rank gone, std::vector<Rank> owners) {
                 transmit({.type = MessageType::kFence,
                           .subject = gone,
                           .number = number,
                           .ranks = std::move(owners)});
               },
           .confirm =
               [this](Rank gone) { transmit({.type = MessageType::kRevoked, .subject = gone}); }}),
      key_(key) {
  for (int rank = 0; rank < job_.founders; ++rank) membership_.members.emplace_back(rank);
  peers_.mark(job_.rank, PeerState::kAlive, "");  // a process that joins the running job, too
}

Status BootstrapClient::start(Duration timeout) {
  auto reply = request({.type = MessageType::kJoin}, timeout);
  if (reply) {
    job_.spans_pid_namespaces = !reply->value.empty();
    return Status::ok();
  }
  return std::move(reply).status().with_context(
      fmt::format("job '{}' did not start (timeout {})", printable(job_.job_id), seconds(timeout)));
}

Status BootstrapClient::count_local(Duration timeout) {
  Bytes own = ByteWriter().number(hash_of(host_identity(""))).take();
  const Membership all = membership();
  const bool is_whole = job_.founders == job_.size;
  DUNLIN_ASSIGN(
      const Bytes kernels,
      gather("bootstrap/kernel", is_whole ? std::span<const Rank>() : all.members, own, timeout));
  job_.local_rank = job_.local_size = 0;
  for (int rank = 0; rank < job_.founders; ++rank) {
    const auto kernel =
        std::span(kernels).subspan(static_cast<std::size_t>(rank) * own.size(), own.size());
    if (!std::ranges::equal(kernel, own)) continue;
    ++job_.local_size;
    if (rank < job_.rank.value()) ++job_.local_rank;
  }
  return Status::ok();
}

void BootstrapClient::announce_leave(Duration timeout) noexcept {
  // A failure is ignored: without a coordinator, no rank can be told.
  (void)request({.type = MessageType::kLeave}, timeout);
}

Status BootstrapClient::publish(std::string_view key, std::span<const std::byte> value) {
  DUNLIN_TRY(check_value(key, value));
  auto reply = request({.type = MessageType::kPublish,
                        .text = std::string(key),
                        .value = Bytes(value.begin(), value.end())},
                       kPromptAnswer);
  return std::move(reply).status();
}

Status BootstrapClient::post(std::string_view key, std::span<const std::byte> value) {
  DUNLIN_TRY(check_value(key, value));
  return send_unanswered({.type = MessageType::kPublish,
                          .text = std::string(key),
                          .value = Bytes(value.begin(), value.end())});
}

void BootstrapClient::release(std::string_view topic, std::size_t users) {
  if (!check_name("a topic", topic)) return;  // nothing was published under such a name
  (void)send_unanswered(
      {.type = MessageType::kRelease, .number = users, .text = std::string(topic)});
}

Status BootstrapClient::send_unanswered(const Message& message) {
  {
    const std::lock_guard lock(mutex_);
    if (disconnected_) return *disconnected_;
  }
  transmit(message);
  return Status::ok();
}

// The coordinator sends the notice of a death before the replies that follow from it.
Status BootstrapClient::explain(Status error) const {
  if (error.code() != Code::kPeerDead || !error.peer()) return error;
  const Rank gone = *error.peer();
  if (!exists(gone)) return error;
  return Status(Code::kPeerDead, fmt::format("rank {} is {}", gone.value(), peers_.describe(gone)))
      .with_peer(gone);
}

Result<Bytes> BootstrapClient::lookup_from(Rank publisher, std::string_view key, Duration timeout) {
  DUNLIN_TRY(check_name("a key", key));
  if (publisher != Rank()) DUNLIN_TRY(check_publisher(key, publisher));
  auto reply = request(
      {.type = MessageType::kLookup, .subject = publisher, .text = std::string(key)}, timeout);
  if (reply) return std::move(reply->value);
  return explain(std::move(reply).status())
      .with_context(fmt::format("lookup of '{}' for {}", key, seconds(timeout)));
}

Status BootstrapClient::check_publisher(std::string_view key, Rank publisher) const {
  if (exists(publisher)) return Status::ok();
  return {Code::kOutOfRange,
          fmt::format("lookup of '{}': rank {} in a job of {}", key, publisher.value(), job_.size)};
}

Result<std::vector<Bytes>> BootstrapClient::lookup_each(std::string_view topic,
                                                        std::span<const Rank> publishers,
                                                        Duration timeout) {
  DUNLIN_TRY(check_name("a topic", topic));
  for (const Rank publisher : publishers) DUNLIN_TRY(check_publisher(topic, publisher));
  const TimePoint deadline = clock_.now() + timeout;
  std::vector<Bytes> values;
  while (values.size() < publishers.size()) {
    const auto rest = publishers.subspan(values.size());
    auto reply = request({.type = MessageType::kLookup,
                          .text = std::string(topic),
                          .ranks = std::vector<Rank>(rest.begin(), rest.end())},
                         deadline - clock_.now());
    if (!reply) {
      return explain(std::move(reply).status())
          .with_context(fmt::format("lookup of '{}' of {} ranks for {}", topic, publishers.size(),
                                    seconds(timeout)));
    }
    auto more = decode_values(reply->value, rest.size());
    if (!more)
      return Status(Code::kCorrupted, fmt::format("malformed answer to a lookup of '{}'", topic));
    std::ranges::move(*more, std::back_inserter(values));
  }
  return values;
}

Result<Message> BootstrapClient::gather_message(std::string_view name, std::span<const Rank> group,
                                                std::span<const std::byte> record) const {
  DUNLIN_TRY(check_value(name, record));
  if (group.size() > static_cast<std::size_t>(job_.size)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("gather '{}': a group of {} ranks in a job of {}", name, group.size(),
                              job_.size));
  }
  return Message{.type = MessageType::kGather,
                 .text = std::string(name),
                 .value = Bytes(record.begin(), record.end()),
                 .ranks = std::vector<Rank>(group.begin(), group.end())};
}

Status BootstrapClient::contribute(std::string_view name, std::span<const Rank> group,
                                   std::span<const std::byte> record) {
  DUNLIN_ASSIGN(const Message message, gather_message(name, group, record));
  return send_unanswered(message);
}

Result<Bytes> BootstrapClient::gather(std::string_view name, std::span<const Rank> group,
                                      std::span<const std::byte> record, Duration timeout) {
  DUNLIN_ASSIGN(Message message, gather_message(name, group, record));
  auto reply = request(std::move(message), timeout);
  if (!reply) {
    return explain(std::move(reply).status())
        .with_context(fmt::format("gather '{}' (timeout {})", name, seconds(timeout)));
  }
  // Ranks of one process may get the same copy.
  if (reply->shared_value) return *reply->shared_value;
  return std::move(reply->value);
}

Status BootstrapClient::barrier(std::string_view name, Duration timeout) {
  DUNLIN_TRY(check_name("a barrier's name", name));
  auto reply = request({.type = MessageType::kBarrier, .text = std::string(name)}, timeout);
  return std::move(reply).status().with_context(
      fmt::format("barrier '{}' (timeout {})", name, seconds(timeout)));
}

int BootstrapClient::add_chore(std::function<void()> chore) {
  const int cores = std::max(cores_shared_by(job_.local_size), 1);
  const int ranks_per_core = (job_.local_size + cores - 1) / cores;
  chore_interval_ = std::min<Duration>(ranks_per_core * kChoreInterval, kLongestChoreInterval);
  chores_.emplace(++last_chore_, std::move(chore));
  return last_chore_;
}

Result<Membership> BootstrapClient::reform(Duration timeout) {
  auto reply = request({.type = MessageType::kReform}, timeout);
  if (!reply) {
    return std::move(reply).status().with_context(
        fmt::format("agreement on the survivors (timeout {})", seconds(timeout)));
  }
  return Membership{reply->number, std::move(reply->ranks)};
}

Membership BootstrapClient::membership() const {
  const std::lock_guard lock(mutex_);
  return membership_;
}

Result<bool> BootstrapClient::changes_before(std::uint64_t step, Duration timeout) {
  using Outcome = StepBoundary::Outcome;
  const TimePoint deadline = clock_.now() + timeout;
  std::unique_lock lock(mutex_);
  if (disconnected_) return *disconnected_;
  std::optional<std::uint64_t> promised;
  Outcome outcome = boundary_.before(step, promised);
  if (promised) {
    const std::uint64_t epoch = membership_.epoch;
    lock.unlock();
    promise(epoch, *promised);
    lock.lock();
    outcome = boundary_.before(step, promised);
  }
  if (outcome == Outcome::kWait) {
    // A member that has died, or that has gone to reform() because of a death, may never answer.
    Rank dead;
    const bool is_known = await(lock, deadline, [&] {
      outcome = boundary_.before(step, promised);
      dead = dead_member();
      return outcome != Outcome::kWait || dead != Rank() || disconnected_;
    });
    if (!is_known) {
      return Status(Code::kDeadlineExceeded,
                    fmt::format("the members are to change, and before step {} it was not known "
                                "between which steps (timeout {})",
                                step, seconds(timeout)));
    }
    if (disconnected_) return *disconnected_;
    if (outcome == Outcome::kWait) {
      return Status(Code::kPeerDead, fmt::format("rank {} is {}; the members were about to change",
                                                 dead.value(), peers_.describe(dead)))
          .with_peer(dead);
    }
  }
  return outcome == Outcome::kChange;
}

Rank BootstrapClient::dead_member() const {
  for (const Rank member : membership_.members) {
    if (peers_.state(member) == PeerState::kDead) return member;
  }
  return {};
}

void BootstrapClient::promise(std::uint64_t epoch, std::uint64_t step) {
  transmit(
      {.type = MessageType::kStep, .number = step, .value = ByteWriter().number(epoch).take()});
}

bool BootstrapClient::is_change_wanted() const {
  const std::lock_guard lock(mutex_);
  return boundary_.is_change_due();
}

Status BootstrapClient::retire() {
  return send_unanswered({.type = MessageType::kRetire});
}

Result<Message> BootstrapClient::request(Message message, Duration timeout) {
  if (does_chores_) {
    const bool waits_for_others =
        message.type == MessageType::kLookup || message.type == MessageType::kGather;
    return Status(waits_for_others ? Code::kDeadlineExceeded : Code::kInternal,
                  "a chore must not call the bootstrap");
  }
  timeout = std::clamp<Duration>(timeout, Duration::zero(), std::chrono::hours(24 * 365));
  const TimePoint deadline = clock_.now() + timeout;
  std::unique_lock lock(mutex_);
  message.request = ++last_request_;
  message.number = static_cast<std::uint64_t>(timeout.count());
  reply_.reset();
  if (disconnected_) return *disconnected_;
  lock.unlock();
  transmit(message);
  lock.lock();
  if (!await_reply(lock, deadline)) {
    lock.unlock();
    on_deadline();
    lock.lock();
    if (!await_reply(lock, deadline + kAnswerSlack)) {
      ++last_request_;  // so that a late reply is ignored
      lock.unlock();
      // What this rank asked for must not happen later, but that it leaves stays true.
      if (message.type != MessageType::kLeave)
        transmit({.type = MessageType::kCancel, .request = message.request});
      return Status(Code::kDeadlineExceeded, "the coordinator does not answer");
    }
  }
  if (!reply_) return *disconnected_;
  if (reply_->code == Code::kOk) return std::move(*reply_);
  Status failure(reply_->code, printable(reply_->text));
  return reply_->subject == Rank() ? std::move(failure)
                                   : std::move(failure).with_peer(reply_->subject);
}

template <typename IsOver>
bool BootstrapClient::await(std::unique_lock<std::mutex>& lock, TimePoint until, IsOver is_over) {
  if (chores_.empty()) return answered_.wait_until(lock, until, is_over);
  const auto is_awake = [&] { return is_over() || std::exchange(has_mail_, false); };
  for (;;) {
    answered_.wait_until(lock, std::min(until, clock_.now() + chore_interval_), is_awake);
    if (is_over()) return true;
    if (clock_.now() >= until) return false;
    lock.unlock();
    {
      const Within chores(does_chores_);
      for (const auto& [number, chore] : chores_) chore();
    }
    lock.lock();
  }
}

bool BootstrapClient::await_reply(std::unique_lock<std::mutex>& lock, TimePoint until) {
  return await(lock, until, [this] { return reply_ || disconnected_; });
}

void BootstrapClient::deliver(Message message) {
  if (message.type == MessageType::kNotice) return on_notice(message);
  if (message.type == MessageType::kMail) {
    mail_.deliver(message.subject, message.value);
    const std::lock_guard lock(mutex_);
    has_mail_ = true;  // for a chore
    answered_.notify_all();
    return;
  }
  if (message.type == MessageType::kRevoke) return fences_.on_revoke(message.subject);
  if (message.type == MessageType::kFenced) return fences_.on_fenced(message.number);
  std::unique_lock lock(mutex_);
  if (message.type == MessageType::kAskStep) {
    const auto promised = boundary_.ask();
    lock.unlock();
    if (promised) promise(message.number, *promised);
    return;
  }
  if (message.type == MessageType::kBoundary) {
    boundary_.tell(message.number);
    return answered_.notify_all();
  }
  if (message.type != MessageType::kReply) return;
  // The others have agreed with this rank, even if its caller has given up.
  if (message.code == Code::kOk && message.number > membership_.epoch) {
    membership_ = {message.number, message.ranks};
    boundary_.reset();
  }
  if (message.request != last_request_) return;
  reply_ = std::move(message);
  answered_.notify_all();
}

void BootstrapClient::on_notice(Message& notice) {
  if (notice.state == PeerState::kLeft) {
    std::erase_if(notice.ranks, [this](Rank rank) { return !exists(rank); });
    return peers_.mark_left(notice.ranks);
  }
  if (!exists(notice.subject)) return;
  if (notice.subject == rank() && notice.state == PeerState::kDead) {
    return cut_off(Status(Code::kClosed,
                          "the other ranks count this rank as dead: " + printable(notice.text)));
  }
  peers_.mark(notice.subject, notice.state, printable(notice.text));
  const std::lock_guard lock(mutex_);
  answered_.notify_all();  // for changes_before()
}

void BootstrapClient::cut_off(const Status& why) {
  fences_.cut_off(why);
  disconnect(why);
}

void BootstrapClient::disconnect(Status why) {
  const std::lock_guard lock(mutex_);
  if (!disconnected_) disconnected_ = std::move(why);
  answered_.notify_all();
}

}  // namespace dunlin::bootstrap
