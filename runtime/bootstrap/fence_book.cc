#include "runtime/bootstrap/fence_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dunlin::bootstrap {
namespace {

// How much the open requests of one rank may take, in ranks: 4 MiB. A rank waits for few fences at
// a time, each around the holder of a mutex.
constexpr std::size_t kMostOpen = std::size_t{1} << 20;

}  // namespace

FenceBook::FenceBook(int size, Send send, IsPresent is_present)
    : size_(size), send_(std::move(send)), is_present_(std::move(is_present)) {}

Status FenceBook::ask(Rank from, const Message& message) {
  const auto is_known = [this](Rank rank) { return exists(rank); };
  if (!exists(message.subject) || !std::ranges::all_of(message.ranks, is_known)) {
    return {Code::kCorrupted, fmt::format("rank {} asked for a fence around rank {}, or for ranks "
                                          "that the job does not have",
                                          from.value(), message.subject.value())};
  }
  if (open_of(from) + message.ranks.size() + 1 > kMostOpen) {
    return {Code::kCorrupted,
            fmt::format("rank {} has asked for too many fences at a time", from.value())};
  }
  Fence& fence = fences_[message.subject];
  fence.open.push_back({from, message.number, message.ranks});
  settle(message.subject, fence);
  return Status::ok();
}

Status FenceBook::confirm(Rank from, const Message& message) {
  const auto found = fences_.find(message.subject);
  if (found == fences_.end() || !found->second.asked.contains(from)) {
    return {Code::kCorrupted, fmt::format("rank {} was not asked to revoke the access of rank {}",
                                          from.value(), message.subject.value())};
  }
  found->second.confirmed.insert(from);
  settle(message.subject, found->second);
  return Status::ok();
}

void FenceBook::note_gone() {
  for (auto& [gone, fence] : fences_) {
    std::erase_if(fence.open, [this](const Request& each) { return !is_present_(each.from); });
    settle(gone, fence);
  }
}

std::size_t FenceBook::open_of(Rank from) const {
  std::size_t taken = 0;
  for (const auto& [gone, fence] : fences_) {
    for (const Request& each : fence.open) {
      if (each.from == from) taken += each.owners.size() + 1;
    }
  }
  return taken;
}

void FenceBook::settle(Rank gone, Fence& fence) {
  if (is_present_(gone)) return;
  std::erase_if(fence.open, [&](const Request& request) {
    bool is_done = true;
    for (const Rank owner : request.owners) {
      if (owner == gone || !is_present_(owner) || fence.confirmed.contains(owner)) continue;
      is_done = false;
      if (fence.asked.insert(owner).second)
        send_(owner, {.type = MessageType::kRevoke, .subject = gone});
    }
    if (is_done) {
      send_(request.from,
            {.type = MessageType::kFenced, .subject = gone, .number = request.number});
    }
    return is_done;
  });
}

}  // namespace dunlin::bootstrap
