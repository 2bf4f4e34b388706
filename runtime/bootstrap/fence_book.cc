#include "runtime/bootstrap/fence_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dunlin::bootstrap {

FenceBook::FenceBook(int size, Send send, IsPresent is_present)
    : size_(size), send_(std::move(send)), is_present_(std::move(is_present)) {}

Status FenceBook::ask(Rank from, const Message& message) {
  const auto is_known = [this](Rank rank) { return exists(rank); };
  if (!exists(message.subject) || !std::ranges::all_of(message.ranks, is_known)) {
    return {Code::kCorrupted, fmt::format("rank {} asked for a fence around rank {}, or for ranks "
                                          "that the job does not have",
                                          from.value(), message.subject.value())};
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
  for (auto& [gone, fence] : fences_) settle(gone, fence);
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
