#include "runtime/bootstrap/release_book.h"

#include <utility>

namespace dunlin::bootstrap {

std::vector<Rank> ReleaseBook::note(Rank from, const std::string& topic, std::uint64_t users) {
  const auto found = releases_.try_emplace(topic).first;
  Release& release = found->second;
  release.ranks.push_back(from);
  if (users > 0) release.users = users;
  if (release.users == 0 || release.ranks.size() < release.users) return {};
  std::vector<Rank> all = std::move(release.ranks);
  releases_.erase(found);
  return all;
}

}  // namespace dunlin::bootstrap
