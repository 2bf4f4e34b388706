#include "collectives/groups/master.h"

#include <fmt/format.h>

#include <algorithm>

namespace dunlin::collective::groups {

Result<GroupMaster> GroupMaster::make(const GroupOptions& options, std::uint64_t first) {
  DUNLIN_ASSIGN(GroupGenerator generator, GroupGenerator::make(options, first));
  return GroupMaster(std::move(generator), first, options.layout.workers());
}

Status GroupMaster::hear(Rank from, const GroupMessage& message, GroupNotices& notices) {
  Worker& worker = workers_[from.index()];
  if (worker.is_lost || worker.has_left)
    return Status(Code::kPeerDead, "was reported dead, or has left").with_peer(from);
  switch (message.kind) {
    case MessageKind::kAsk:
      // The generator doesn't know the groups of former masters.
      return generator_.ask(from, message.iteration, message.number < first_ ? 0 : message.number,
                            notices);
    case MessageKind::kDone:
      if (message.number >= first_) return generator_.done(from, message.number, notices);
      if (worker.kept.size() < kMostDone) worker.kept.push_back(message.number);
      return Status::ok();
    case MessageKind::kFail:
      return fail(from, message.number, notices);
    case MessageKind::kResume:
      return resume(from, message, notices);
    case MessageKind::kLeave:
      DUNLIN_TRY(generator_.lose(from, notices, message.number < first_ ? 0 : message.number));
      worker.has_left = true;
      return Status::ok();
    default:
      return Status(Code::kCorrupted, "a worker does not send that").with_peer(from);
  }
}

Status GroupMaster::fail(Rank from, std::uint64_t number, GroupNotices& notices) {
  if (number >= first_) return generator_.fail(from, number, notices);
  // Members that have not reported yet may be in it.
  std::erase(workers_[from.index()].kept, number);
  break_old(number, notices);
  const bool is_told = std::ranges::any_of(notices, [&](const GroupNotice& notice) {
    return notice.to == from && notice.group.sequence == number;
  });
  if (is_told) return Status::ok();
  notices.push_back(
      {.kind = GroupNotice::Kind::kBroken, .to = from, .group = {number, {}}, .ask_again = true});
  return Status::ok();
}

Status GroupMaster::resume(Rank from, const GroupMessage& message, GroupNotices& notices) {
  Worker& worker = workers_[from.index()];
  if (worker.has_reported || message.number >= first_) {
    return Status(Code::kInvalidArgument,
                  fmt::format("comes from a former master's group {}{}", message.number,
                              worker.has_reported ? ", for the second time" : ", which is ours"))
        .with_peer(from);
  }
  if (message.flag) {
    const auto found = old_.find(message.number);
    if ((found != old_.end() && found->second.ranks != message.ranks) ||
        !std::ranges::binary_search(message.ranks, from)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("is in a former master's group {}, with other members than those "
                                "that others see",
                                message.number))
          .with_peer(from);
    }
    OldGroup& group = old_[message.number];
    group.ranks = message.ranks;
    group.inside.push_back(from);
    worker.kept.push_back(message.number);
  }
  worker.has_reported = true;
  review(from, notices);
  return Status::ok();
}

Status GroupMaster::lose(Rank rank, GroupNotices& notices) {
  workers_[rank.index()].is_lost = true;
  DUNLIN_TRY(generator_.lose(rank, notices));
  review(rank, notices);
  return Status::ok();
}

bool GroupMaster::is_hopeless(std::uint64_t number, const OldGroup& group) const {
  return std::ranges::any_of(group.ranks, [&](Rank member) {
    const Worker& worker = workers_[member.index()];
    // A reduce that a member is done with ends at the others by itself, even if that member has
    // left and is gone by now.
    const bool is_kept = std::ranges::find(worker.kept, number) != worker.kept.end();
    return (worker.is_lost && !worker.has_left) || (worker.has_reported && !is_kept);
  });
}

void GroupMaster::review(Rank rank, GroupNotices& notices) {
  std::vector<std::uint64_t> hopeless;
  for (const auto& [number, group] : old_) {
    if (std::ranges::binary_search(group.ranks, rank) && is_hopeless(number, group))
      hopeless.push_back(number);
  }
  for (const std::uint64_t number : hopeless) break_old(number, notices);
}

// Members that are done with it, or report later, ignore the notice.
void GroupMaster::break_old(std::uint64_t number, GroupNotices& notices) {
  const auto found = old_.find(number);
  if (found == old_.end()) return;
  for (const Rank member : found->second.inside) {
    const Worker& worker = workers_[member.index()];
    if (worker.is_lost || worker.has_left) continue;
    notices.push_back({.kind = GroupNotice::Kind::kBroken,
                       .to = member,
                       .group = {number, {}},
                       .ask_again = true});
  }
  old_.erase(found);
}

bool GroupMaster::is_over() const {
  return std::ranges::all_of(
      workers_, [](const Worker& worker) { return worker.is_lost || worker.has_left; });
}

}  // namespace dunlin::collective::groups
