#include "runtime/bootstrap/value_book.h"

#include <fmt/format.h>

#include "runtime/bootstrap/constants.h"
#include "runtime/units.h"

namespace dunlin::bootstrap {
namespace {

std::size_t bytes_of(const Message& message) {
  return message.text.size() + message.value.size() + message.ranks.size() * sizeof(Rank) +
         kKeptEntryBytes;
}

}  // namespace

Status ValueBook::keep(Rank from, const Message& message) {
  if (values_.contains(message.text)) {
    return {Code::kAlreadyExists,
            fmt::format("the key '{}' has been published before", message.text)};
  }
  DUNLIN_TRY(charge(from, message));
  values_.emplace(message.text, message.value);
  return Status::ok();
}

const Bytes* ValueBook::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Status ValueBook::charge(Rank from, const Message& message) {
  Kept& kept = kept_[from.index()];
  const std::size_t most_keys = kMaxKeptKeys + kMaxKeptKeysPerPeer * kept_.size();
  const std::size_t most_bytes = kMaxKeptBytes + kMaxKeptBytesPerPeer * kept_.size();
  const std::size_t bytes = kept.bytes + bytes_of(message);
  if (kept.keys == most_keys || bytes > most_bytes) {
    return {Code::kResourceExhausted,
            fmt::format("rank {} has published {} keys with {}; the coordinator keeps no more than "
                        "{} keys and {} of one rank of this job",
                        from.value(), kept.keys, format_bytes(static_cast<double>(kept.bytes)),
                        most_keys, format_bytes(static_cast<double>(most_bytes)))};
  }
  ++kept.keys;
  kept.bytes = bytes;
  return Status::ok();
}

void ValueBook::refund(Rank from, const Message& message) {
  Kept& kept = kept_[from.index()];
  --kept.keys;
  kept.bytes -= bytes_of(message);
}

}  // namespace dunlin::bootstrap
