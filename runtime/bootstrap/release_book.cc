#include "runtime/bootstrap/release_book.h"

#include "runtime/bootstrap/constants.h"

namespace dunlin::bootstrap {

Status ReleaseBook::note(Rank from, const std::string& topic, std::uint64_t users) {
  const std::size_t bytes = topic.size() + kKeptEntryBytes;
  const auto found = releases_.try_emplace(topic).first;
  Release& release = found->second;
  if (!release.ranks.contains(from)) {
    if (Status charged = allowance_.charge(from, bytes); !charged) {
      if (release.ranks.empty()) releases_.erase(found);
      return charged;
    }
    release.ranks.insert(from);
  }
  if (users > 0) release.users = users;
  if (release.users == 0 || release.ranks.size() < release.users) return Status::busy();
  for (const Rank rank : release.ranks) allowance_.refund(rank, bytes);
  releases_.erase(found);
  return Status::ok();
}

}  // namespace dunlin::bootstrap
