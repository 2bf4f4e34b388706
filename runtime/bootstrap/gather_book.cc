#include "runtime/bootstrap/gather_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bootstrap/allowance.h"
#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/job_ledger.h"

namespace dunlin::bootstrap {
namespace {

using PlaceOfRank = std::pair<Rank, std::size_t>;

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
  const auto at = std::ranges::lower_bound(gather.places, rank, {}, &PlaceOfRank::first);
  return at == gather.places.end() || at->first != rank ? gather.members : at->second;
}

bool GatherBook::has(Rank rank, const std::string& name) const {
  const Gather* const gather = find(name);
  if (gather == nullptr) return false;
  const std::size_t at = place(*gather, rank);
  return at < gather->members && gather->has(at);
}

Status GatherBook::begin(Rank from, const Message& message) {
  Gather gather{message.ranks,
                message.value.size(),
                message.ranks.empty() ? size_ : message.ranks.size(),
                Allowance::bytes_of(message),
                from,
                {}};
  for (std::size_t at = 0; at < message.ranks.size(); ++at)
    gather.places.emplace_back(message.ranks[at], at);
  std::ranges::sort(gather.places);
  const auto& places = gather.places;
  const bool has_double =
      std::ranges::adjacent_find(places, {}, &PlaceOfRank::first) != places.end();
  const bool has_stranger =
      !places.empty() && (places.front().first.value() < 0 || places.back().first.index() >= size_);
  if (has_double || has_stranger) {
    return {Code::kInvalidArgument,
            fmt::format("gather '{}': the group of rank {} names {}", message.text, from.value(),
                        has_double ? "a rank twice" : "a rank that the job does not have")};
  }
  if (place(gather, from) == gather.members) {
    return {Code::kInvalidArgument, fmt::format("gather '{}': rank {} does not belong to the group",
                                                message.text, from.value())};
  }
  const std::size_t members = gather.members;
  if (message.value.size() > kMaxValueBytes / members) {
    return {Code::kInvalidArgument,
            fmt::format("gather '{}': {} records of {} bytes are more than {} bytes", message.text,
                        members, message.value.size(), kMaxValueBytes)};
  }
  const auto lacking =
      std::ranges::find_if(gone_, [&gather](Rank rank) { return lacks(gather, rank); });
  if (lacking != gone_.end()) gather.gone = *lacking;
  gathers_.emplace(message.text, std::move(gather));
  open_.insert(message.text);
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
  open_.erase(message.text);
  return Status::ok();
}

std::shared_ptr<const Bytes> GatherBook::records(const std::string& name) const {
  const Gather* const gather = find(name);
  return gather == nullptr ? nullptr : gather->records;
}

GatherBook::Forgotten GatherBook::forget(const std::string& name) {
  const auto found = gathers_.find(name);
  if (found == gathers_.end()) return {};
  const Gather& gather = found->second;
  Forgotten result{.contributors = {}, .bytes = gather.kept_bytes};
  for (std::size_t at = 0; at < gather.members; ++at) {
    if (gather.has(at)) result.contributors.push_back(gather.rank(at));
  }
  open_.erase(name);
  gathers_.erase(found);
  return result;
}

std::vector<Rank> GatherBook::missing(const std::string& name) const {
  std::vector<Rank> result;
  const Gather* const gather = find(name);
  if (gather == nullptr) return result;
  for (std::size_t at = 0; at < gather->members; ++at) {
    if (gather->has(at)) continue;
    result.push_back(gather->rank(at));
  }
  return result;
}

bool GatherBook::lacks(const Gather& gather, Rank rank) {
  const std::size_t at = place(gather, rank);
  return at < gather.members && !gather.has(at);
}

void GatherBook::note_gone(Rank rank) {
  gone_.push_back(rank);
  for (const std::string& name : open_) {
    Gather& gather = gathers_.at(name);
    if (!gather.gone && lacks(gather, rank)) gather.gone = rank;
  }
}

std::optional<Rank> GatherBook::gone(const std::string& name) const {
  const Gather* const gather = find(name);
  return gather == nullptr ? std::nullopt : gather->gone;
}

}  // namespace dunlin::bootstrap
