#include "runtime/bootstrap/gather_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/job_ledger.h"

namespace dunlin::bootstrap {
namespace {

// "the group 3, 1" or "the whole job"
std::string describe(const std::vector<Rank>& group) {
  return group.empty() ? "the whole job" : "the group " + list_ranks(group);
}

}  // namespace

const GatherBook::Gather* GatherBook::find(const std::string& name) const {
  const auto found = gathers_.find(name);
  return found == gathers_.end() ? nullptr : &found->second;
}

std::size_t GatherBook::place(const Gather& gather, Rank rank) {
  if (gather.group.empty()) return std::min(rank.index(), gather.members);
  return static_cast<std::size_t>(std::ranges::find(gather.group, rank) - gather.group.begin());
}

bool GatherBook::has(Rank rank, const std::string& name) const {
  const Gather* const gather = find(name);
  if (gather == nullptr) return false;
  const std::size_t at = place(*gather, rank);
  return at < gather->members && gather->has(at);
}

Status GatherBook::begin(Rank from, const Message& message) {
  const std::size_t members = message.ranks.empty() ? size_ : message.ranks.size();
  const auto sorted = [&message] {
    std::vector<Rank> ranks = message.ranks;
    std::ranges::sort(ranks);
    return ranks;
  }();
  const bool has_double = std::ranges::adjacent_find(sorted) != sorted.end();
  const bool has_stranger =
      !sorted.empty() && (sorted.front().value() < 0 || sorted.back().index() >= size_);
  if (has_double || has_stranger) {
    return {Code::kInvalidArgument,
            fmt::format("gather '{}': the group of rank {} names {}", message.text, from.value(),
                        has_double ? "a rank twice" : "a rank that the job does not have")};
  }
  if (!message.ranks.empty() && std::ranges::find(message.ranks, from) == message.ranks.end()) {
    return {Code::kInvalidArgument, fmt::format("gather '{}': rank {} does not belong to the group",
                                                message.text, from.value())};
  }
  if (message.value.size() > kMaxValueBytes / members) {
    return {Code::kInvalidArgument,
            fmt::format("gather '{}': {} records of {} bytes are more than {} bytes", message.text,
                        members, message.value.size(), kMaxValueBytes)};
  }
  gathers_.emplace(message.text, Gather{message.ranks, message.value.size(), members, from, {}});
  return Status::ok();
}

Status GatherBook::add(Rank from, const Message& message) {
  if (!gathers_.contains(message.text)) DUNLIN_TRY(begin(from, message));
  Gather& gather = gathers_.at(message.text);
  const bool is_member = place(gather, from) < gather.members;
  if (!is_member || message.value.size() != gather.record_bytes || message.ranks != gather.group) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("gather '{}': rank {} passes {} bytes in {}, rank {} passed {} bytes in {}",
                    message.text, from.value(), message.value.size(), describe(message.ranks),
                    gather.first.value(), gather.record_bytes, describe(gather.group)));
  }
  const std::size_t at = place(gather, from);
  if (gather.has(at)) return Status::ok();  // a call that is repeated; the first record stays
  gather.parts.emplace(at, message.value);
  if (gather.parts.size() < gather.members) return Status::ok();
  Bytes records;
  records.reserve(gather.members * gather.record_bytes);
  for (const auto& [place, part] : gather.parts)
    records.insert(records.end(), part.begin(), part.end());
  gather.records = std::make_shared<const Bytes>(std::move(records));
  gather.parts.clear();
  return Status::ok();
}

std::shared_ptr<const Bytes> GatherBook::records(const std::string& name) const {
  const Gather* const gather = find(name);
  return gather == nullptr ? nullptr : gather->records;
}

std::vector<Rank> GatherBook::missing(const std::string& name) const {
  std::vector<Rank> result;
  const Gather* const gather = find(name);
  if (gather == nullptr) return result;
  for (std::size_t at = 0; at < gather->members; ++at) {
    if (gather->has(at)) continue;
    result.push_back(gather->group.empty() ? Rank(static_cast<int>(at)) : gather->group[at]);
  }
  return result;
}

bool GatherBook::is_missing(Rank rank, const std::string& name) const {
  const Gather* const gather = find(name);
  if (gather == nullptr) return false;
  const std::size_t at = place(*gather, rank);
  return at < gather->members && !gather->has(at);
}

}  // namespace dunlin::bootstrap
