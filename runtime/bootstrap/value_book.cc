#include "runtime/bootstrap/value_book.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/constants.h"
#include "runtime/units.h"

namespace dunlin::bootstrap {

std::size_t ValueBook::bytes_of(const Message& message) {
  return message.text.size() + message.value.size() + message.ranks.size() * sizeof(Rank) +
         kKeptEntryBytes;
}

Status ValueBook::keep(Rank from, const Message& message) {
  if (values_.contains(message.text)) {
    return {Code::kAlreadyExists,
            fmt::format("the key '{}' has been published before", message.text)};
  }
  const std::size_t bytes = bytes_of(message);
  DUNLIN_TRY(charge(from, bytes));
  values_.emplace(message.text, Value{message.value, from, bytes});
  return Status::ok();
}

const Bytes* ValueBook::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second.bytes;
}

ValueBook::Values::iterator ValueBook::erase(Values::iterator value) {
  refund(value->second.publisher, value->second.kept_bytes);
  return values_.erase(value);
}

void ValueBook::forget(const std::string& topic) {
  if (const auto own = values_.find(topic); own != values_.end()) erase(own);
  // Keys that begin like those of ranks, but are others, may lie between them.
  const std::string head = Bootstrap::key_of(topic, Rank(0));
  const std::string_view prefix = std::string_view(head).substr(0, head.size() - 1);
  auto each = values_.lower_bound(prefix);
  while (each != values_.end() && each->first.starts_with(prefix)) {
    const Rank rank = each->second.publisher;
    each = each->first == Bootstrap::key_of(topic, rank) ? erase(each) : std::next(each);
  }
}

Status ValueBook::charge(Rank rank, std::size_t more) {
  Kept& kept = kept_[rank.index()];
  const std::size_t most_keys = kMaxKeptKeys + kMaxKeptKeysPerPeer * kept_.size();
  const std::size_t most_bytes = kMaxKeptBytes + kMaxKeptBytesPerPeer * kept_.size();
  const std::size_t bytes = kept.bytes + more;
  if (kept.keys == most_keys || bytes > most_bytes) {
    return {Code::kResourceExhausted,
            fmt::format("rank {} has published {} keys with {}; the coordinator keeps no more than "
                        "{} keys and {} of one rank of this job",
                        rank.value(), kept.keys, format_bytes(static_cast<double>(kept.bytes)),
                        most_keys, format_bytes(static_cast<double>(most_bytes)))};
  }
  ++kept.keys;
  kept.bytes = bytes;
  return Status::ok();
}

void ValueBook::refund(Rank rank, std::size_t bytes) {
  Kept& kept = kept_[rank.index()];
  --kept.keys;
  kept.bytes -= bytes;
}

}  // namespace dunlin::bootstrap
