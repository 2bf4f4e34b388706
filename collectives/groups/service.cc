#include "collectives/groups/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/groups/mailbox.h"
#include "collectives/groups/master.h"
#include "collectives/groups/message.h"
#include "collectives/groups/numbers.h"
#include "runtime/log.h"
#include "runtime/within.h"

namespace dunlin::collective {

using groups::GroupMaster;
using groups::GroupMessage;
using groups::GroupNumbers;
using groups::Mailboxes;
using groups::MailboxMessage;
using groups::MessageKind;
using transport::Awaited;

namespace {

// How many notices may wait for poll(). A working master sends one to join, and some for broken
// groups.
constexpr std::size_t kMostNotices = 4096;

Bytes terms_of(const GroupServiceOptions& options) {
  const GroupOptions& groups = options.groups;
  return ByteWriter()
      .number(static_cast<std::uint8_t>(groups.policy))
      .number(std::int32_t{groups.layout.hosts})
      .number(std::int32_t{groups.layout.workers_per_host})
      .number(std::int32_t{groups.group_size})
      .number(groups.slowdown_threshold)
      .number(static_cast<std::uint8_t>(groups.inter_intra))
      .number(static_cast<std::uint8_t>(groups.intra_filter))
      .number(groups.most_alone)
      .number(groups.seed)
      .number(options.agreed)
      .take();
}

}  // namespace

GroupService::GroupService(transport::Fabric& fabric, GroupServiceOptions options)
    : fabric_(fabric),
      options_(std::move(options)),
      mailboxes_(
          std::make_unique<Mailboxes>(fabric, "groups/" + options_.name, terms_of(options_))),
      is_reported_(static_cast<std::size_t>(fabric.size())) {}

GroupService::~GroupService() = default;

Result<std::unique_ptr<GroupService>> GroupService::create(transport::Fabric& fabric,
                                                           GroupServiceOptions options) {
  DUNLIN_TRY(check(options.groups));
  if (const int workers = options.groups.layout.workers(); workers != fabric.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': a layout of {} hosts with {} workers each, in a job of {}",
                              options.name, options.groups.layout.hosts,
                              options.groups.layout.workers_per_host, fabric.size()));
  }
  std::unique_ptr<GroupService> made(new GroupService(fabric, std::move(options)));
  DUNLIN_TRY(made->mailboxes_->publish());
  DUNLIN_TRY(made->look());
  made->task_.emplace(fabric, [service = made.get()] { service->serve_peers(); });
  return made;
}

Status GroupService::progress() {
  if (error_.is_error()) return error_;
  fabric_.progress();
  advance();
  return error_;
}

bool GroupService::takes_part(Rank rank) const {
  const std::vector<Rank>& members = options_.members;
  const bool is_member = members.empty() || std::ranges::binary_search(members, rank);
  return is_member && fabric_.peers().is_present(rank);
}

Rank GroupService::lowest() const {
  Rank rank(0);
  while (rank != fabric_.rank() && !takes_part(rank)) rank = Rank(rank.value() + 1);
  return rank;
}

void GroupService::serve_peers() {
  if (master_) {
    if (numbers_->is_extended_soon(master_->generator().groups_made())) return;
  } else if (lowest() == fabric_.rank()) {
    return;  // it is about to become the master
  }
  advance();
}

bool GroupService::needs_progress() const {
  return !is_over_ || mailboxes_->needs_progress();
}

void GroupService::advance() {
  const Within inside(is_inside_);
  if (error_.is_error() || inside.was_within()) return;
  if (Status status = step(); status.is_error())
    error_ = std::move(status).with_context(fmt::format("groups of '{}'", options_.name));
}

Status GroupService::step() {
  DUNLIN_TRY(look());
  DUNLIN_TRY(master_ ? serve() : listen());
  return mailboxes_->progress();
}

Status GroupService::look() {
  PeerTable& peers = fabric_.peers();
  const std::uint64_t version = peers.version();
  if (version == seen_) return Status::ok();
  seen_ = version;
  if (const Rank master = lowest(); master != master_rank_) DUNLIN_TRY(turn_to(master));
  if (!master_) return Status::ok();
  for (int value = 0; value < fabric_.size(); ++value) {
    const Rank rank(value);
    if (rank == fabric_.rank() || is_reported_[rank.index()] || takes_part(rank)) continue;
    is_reported_[rank.index()] = true;
    GroupNotices notices;
    DUNLIN_TRY(master_->lose(rank, notices));
    DUNLIN_TRY(deliver(notices));
  }
  return Status::ok();
}

Status GroupService::turn_to(Rank master) {
  if (master_rank_ != Rank()) ++changes_;
  master_rank_ = master;
  // Notices of the former master are dropped, unless they say that the present group is broken.
  std::erase_if(inbox_, [&](const GroupNotice& notice) {
    return notice.kind != GroupNotice::Kind::kBroken || notice.group.sequence != joined_;
  });
  to_master_.clear();
  if (master == fabric_.rank()) DUNLIN_TRY(become_master());
  // There is no master before the first member.
  const Rank first = options_.members.empty() ? Rank(0) : options_.members.front();
  if (master == first) return Status::ok();

  // Other members may still be in these groups.
  for (const std::uint64_t number : done_) say_done(number);
  GroupMessage resume;
  resume.kind = MessageKind::kResume;
  resume.number = joined_;
  resume.flag = phase_ == Phase::kInside;
  if (resume.flag) resume.ranks = present_.group.ranks;
  say(std::move(resume));
  GroupMessage again;
  switch (phase_) {
    case Phase::kAsking:
      say_ask();
      break;
    case Phase::kFailing:
      again.kind = MessageKind::kFail;
      again.number = joined_;
      say(std::move(again));
      break;
    case Phase::kLeaving:
      say_leave();
      break;
    default:
      break;
  }
  return Status::ok();
}

Status GroupService::become_master() {
  DUNLIN_ASSIGN(GroupNumbers numbers,
                GroupNumbers::take(fabric_.bootstrap(), options_.name, joined_));
  DUNLIN_ASSIGN(GroupMaster master, GroupMaster::make(options_.groups, numbers.first()));
  numbers_ = std::make_unique<GroupNumbers>(std::move(numbers));
  master_ = std::make_unique<GroupMaster>(std::move(master));
  if (fabric_.rank() != Rank(0)) {
    DUNLIN_INFO("groups of '{}' are served by rank {} from now on", options_.name,
                fabric_.rank().value());
  }
  return Status::ok();
}

// ---- a worker ----

Status GroupService::ask(std::uint64_t iteration) {
  DUNLIN_TRY(error_);
  if (phase_ != Phase::kComputing) {
    return {
        Code::kInvalidArgument,
        fmt::format("'{}': asks for groups of iteration {} {}", options_.name, iteration,
                    phase_ == Phase::kLeaving ? "after it has left" : "before the last is over")};
  }
  if (has_asked_ && iteration <= iteration_) {
    return {Code::kInvalidArgument, fmt::format("'{}': asks for groups of iteration {} after {}",
                                                options_.name, iteration, iteration_)};
  }
  iteration_ = iteration;
  has_asked_ = true;
  phase_ = Phase::kAsking;
  say_ask();
  return Status::ok();
}

void GroupService::say_ask() {
  GroupMessage ask;
  ask.kind = MessageKind::kAsk;
  ask.iteration = iteration_;
  ask.number = last_done_;
  say(std::move(ask));
}

void GroupService::say_done(std::uint64_t number) {
  GroupMessage done;
  done.kind = MessageKind::kDone;
  done.number = number;
  say(std::move(done));
}

void GroupService::say(GroupMessage message) {
  to_master_.push_back(std::move(message));
}

std::optional<GroupNotice> GroupService::poll() {
  if (phase_ == Phase::kInside || phase_ == Phase::kFailing) {
    const auto broken = std::ranges::find_if(inbox_, [&](const GroupNotice& notice) {
      return notice.kind == GroupNotice::Kind::kBroken && notice.group.sequence == joined_;
    });
    if (broken == inbox_.end()) return std::nullopt;
    const GroupNotice notice = *broken;
    inbox_.erase(broken);
    phase_ = Phase::kAsking;
    // A new master doesn't know of the ask.
    if (notice.ask_again || present_from_ != master_rank_) say_ask();
    return notice;
  }
  while (phase_ == Phase::kAsking && !inbox_.empty()) {
    const GroupNotice notice = std::move(inbox_.front());
    inbox_.pop_front();
    const bool is_news = notice.kind == GroupNotice::Kind::kJoin && notice.group.sequence > joined_;
    if (!is_news) continue;
    phase_ = Phase::kInside;
    present_ = notice;
    present_from_ = master_rank_;
    joined_ = notice.group.sequence;
    return notice;
  }
  return std::nullopt;
}

Status GroupService::check_present(std::uint64_t number, const char* what) const {
  if (phase_ == Phase::kInside && number == joined_) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("'{}': says that group {} {}, but is in {}", options_.name, number, what,
                      phase_ == Phase::kInside ? joined_ : 0)};
}

Status GroupService::done(std::uint64_t number) {
  DUNLIN_TRY(error_);
  DUNLIN_TRY(check_present(number, "is done"));
  last_done_ = number;
  if (!present_.group.is_alone()) {
    done_.push_back(number);
    if (done_.size() > groups::kMostDone) done_.pop_front();
  }
  phase_ = present_.then_compute ? Phase::kComputing : Phase::kAsking;
  const bool is_of_former = present_from_ != master_rank_;
  if (present_.group.leader() == fabric_.rank() && !present_.group.is_alone() && !is_of_former)
    say_done(number);
  // The new master doesn't know that this rank waits for another group.
  if (phase_ == Phase::kAsking && is_of_former) say_ask();
  return Status::ok();
}

Status GroupService::fail(std::uint64_t number) {
  DUNLIN_TRY(error_);
  DUNLIN_TRY(check_present(number, "failed"));
  phase_ = Phase::kFailing;
  GroupMessage fail;
  fail.kind = MessageKind::kFail;
  fail.number = number;
  say(std::move(fail));
  return Status::ok();
}

Status GroupService::leave() {
  DUNLIN_TRY(error_);
  if (phase_ == Phase::kLeaving) return Status::ok();
  if (phase_ != Phase::kComputing)
    return {Code::kInvalidArgument,
            fmt::format("'{}': leaves before its last group is over", options_.name)};
  phase_ = Phase::kLeaving;
  say_leave();
  return Status::ok();
}

void GroupService::say_leave() {
  GroupMessage leave;
  leave.kind = MessageKind::kLeave;
  leave.number = last_done_;
  say(std::move(leave));
}

Status GroupService::listen() {
  for (const GroupMessage& message : std::exchange(to_master_, {}))
    DUNLIN_TRY(mailboxes_->send(master_rank_, groups::encode(message)));
  for (;;) {
    DUNLIN_ASSIGN(const std::optional<MailboxMessage> received, mailboxes_->receive(master_rank_));
    if (!received) return Status::ok();
    auto message = groups::decode(*received, fabric_.size());
    if (!message) return std::move(message).status().with_peer(master_rank_);
    DUNLIN_TRY(take(std::move(*message)));
  }
}

// Handles a message of the master.
Status GroupService::take(GroupMessage message) {
  switch (message.kind) {
    case MessageKind::kJoin:
    case MessageKind::kBroken:
      return take_notice(message);
    case MessageKind::kOver:
      if (phase_ != Phase::kLeaving) break;
      is_over_ = true;
      return Status::ok();
    case MessageKind::kRefused:
      return Status(message.code, fmt::format("rank {}, which serves them, refuses: {}",
                                              master_rank_.value(), message.text))
          .with_peer(master_rank_);
    default:
      break;
  }
  return Status(Code::kCorrupted,
                fmt::format("rank {}, which serves them, has sent an impossible message",
                            master_rank_.value()))
      .with_peer(master_rank_);
}

Status GroupService::take_notice(const GroupMessage& message) {
  if (message.kind == MessageKind::kJoin &&
      !std::ranges::binary_search(message.ranks, fabric_.rank())) {
    return Status(Code::kCorrupted,
                  fmt::format("rank {} tells this one to join group {}, of which it is no member",
                              master_rank_.value(), message.number))
        .with_peer(master_rank_);
  }
  // Repetitions, and notices of groups that are over.
  if (message.number < joined_ || (message.kind == MessageKind::kJoin && message.number == joined_))
    return Status::ok();
  if (inbox_.size() >= kMostNotices) {
    return Status(Code::kResourceExhausted, fmt::format("rank {} has sent {} notices unasked",
                                                        master_rank_.value(), inbox_.size()))
        .with_peer(master_rank_);
  }
  inbox_.push_back(groups::to_notice(message, fabric_.rank()));
  return Status::ok();
}

// ---- the master ----

Status GroupService::serve() {
  for (const GroupMessage& message : std::exchange(to_master_, {}))
    DUNLIN_TRY(hear(fabric_.rank(), message));
  for (int value = 0; value < fabric_.size(); ++value) {
    const Rank rank(value);
    if (rank == fabric_.rank() || is_reported_[rank.index()]) continue;
    for (;;) {
      const auto received = mailboxes_->receive(rank);
      if (!received) {
        DUNLIN_TRY(refuse(rank, received.status()));
        break;
      }
      if (!*received) break;
      DUNLIN_TRY(hear(rank, groups::decode(**received, fabric_.size())));
    }
  }
  return look_for_end();
}

Status GroupService::hear(Rank from, const Result<GroupMessage>& message) {
  if (!message) return refuse(from, message.status());
  GroupNotices notices;
  const Status status = master_->hear(from, *message, notices);
  if (status.is_error()) return refuse(from, status);
  DUNLIN_TRY(numbers_->extend(master_->generator().groups_made()));
  return deliver(notices);
}

// The error is that rank's, unless this rank is that rank.
Status GroupService::refuse(Rank rank, const Status& why) {
  if (rank == fabric_.rank()) return why;
  DUNLIN_WARN("groups of '{}': rank {} is refused: {}", options_.name, rank.value(),
              why.to_string());
  GroupMessage refusal;
  refusal.kind = MessageKind::kRefused;
  refusal.code = why.code();
  refusal.text = std::string(why.message());
  return tell(rank, refusal);
}

Status GroupService::tell(Rank rank, const GroupMessage& message) {
  if (rank == fabric_.rank()) return take(message);
  return mailboxes_->send(rank, groups::encode(message));
}

Status GroupService::deliver(const GroupNotices& notices) {
  for (const GroupNotice& notice : notices) DUNLIN_TRY(tell(notice.to, groups::to_message(notice)));
  return Status::ok();
}

Status GroupService::look_for_end() {
  if (!master_->is_over()) return Status::ok();
  if (!has_told_end_) {
    has_told_end_ = true;
    GroupMessage over;
    over.kind = MessageKind::kOver;
    for (int value = 0; value < fabric_.size(); ++value) {
      if (Rank(value) != fabric_.rank() && takes_part(Rank(value)))
        DUNLIN_TRY(tell(Rank(value), over));
    }
  }
  bool is_delivered = true;
  for (int value = 0; value < fabric_.size(); ++value)
    is_delivered = is_delivered && mailboxes_->is_delivered(Rank(value));
  is_over_ = is_over_ || is_delivered;
  return Status::ok();
}

const GroupGenerator* GroupService::generator() const {
  return master_ ? &master_->generator() : nullptr;
}

Rank GroupService::blocker() const {
  const bool is_asking = phase_ == Phase::kAsking || phase_ == Phase::kFailing;
  const bool is_waiting = !master_ && is_asking && master_rank_ != fabric_.rank() &&
                          fabric_.peers().is_present(master_rank_);
  return is_waiting ? master_rank_ : Rank();
}

std::vector<Awaited> GroupService::awaited() const {
  std::vector<Awaited> all;
  const auto add = [&](Rank rank, std::string what) {
    // A rank that is gone is no longer waited for, as the next step finds out.
    if (rank != fabric_.rank() && takes_part(rank)) all.push_back({rank, std::move(what)});
  };
  const bool is_leaving = phase_ == Phase::kLeaving && !is_over_;
  if (!master_) {
    if (phase_ == Phase::kAsking)
      add(master_rank_, fmt::format("a group of iteration {}", iteration_));
    if (phase_ == Phase::kFailing)
      add(master_rank_, fmt::format("the end of group {}, which failed", joined_));
    if (is_leaving) add(master_rank_, "the end of all ranks' training");
    return all;
  }
  if (is_leaving) {
    for (int value = 0; value < fabric_.size(); ++value) {
      if (!master_->has_left(Rank(value))) add(Rank(value), "the end of its training");
    }
  }
  const GroupGenerator& generator = master_->generator();
  const auto& queue = generator.queue_of(fabric_.rank());
  if (phase_ != Phase::kAsking || queue.empty()) return all;
  // Members whose earlier groups are not over.
  for (const Rank member : generator.find(queue.front())->ranks) {
    if (const auto& other = generator.queue_of(member);
        !other.empty() && other.front() < queue.front())
      add(member, fmt::format("the end of its group {}", other.front()));
  }
  return all;
}

}  // namespace dunlin::collective
