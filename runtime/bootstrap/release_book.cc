#include "runtime/bootstrap/release_book.h"

#include <utility>

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {

Status ReleaseBook::note(Rank from, const std::string& topic, std::uint64_t users) {
  const std::size_t bytes = topic.size() + kKeptEntryBytes;
  const auto found = releases_.try_emplace(topic).first;
  Release& release = found->second;
  if (users > 0) release.users = users;
  const bool is_new = !release.ranks.contains(from);
  if (release.users > 0 && release.ranks.size() + (is_new ? 1 : 0) >= release.users) {
    for (const Rank rank : release.ranks) allowance_.refund(rank, bytes);
    releases_.erase(found);
    return Status::ok();
  }
  if (!is_new) return Status::busy();
  if (Status charged = allowance_.charge(from, bytes); !charged) {
    if (release.ranks.empty()) releases_.erase(found);
    return std::move(charged).with_context("releasing what other ranks have not");
  }
  release.ranks.insert(from);
  return Status::busy();
}

}  // namespace dunlin::bootstrap
