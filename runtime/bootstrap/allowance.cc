#include "runtime/bootstrap/allowance.h"

#include <fmt/format.h>

#include "runtime/bootstrap/constants.h"
#include "runtime/units.h"

namespace dunlin::bootstrap {

std::size_t Allowance::bytes_of(const Message& message) {
  return message.text.size() + message.value.size() + message.ranks.size() * sizeof(Rank) +
         kKeptEntryBytes;
}

Status Allowance::charge(Rank rank, std::size_t bytes) {
  Kept& kept = kept_[rank.index()];
  const std::size_t most_entries = kMaxKeptKeys + kMaxKeptKeysPerPeer * kept_.size();
  const std::size_t most_bytes = kMaxKeptBytes + kMaxKeptBytesPerPeer * kept_.size();
  if (kept.entries == most_entries || kept.bytes + bytes > most_bytes) {
    return {Code::kResourceExhausted,
            fmt::format("the coordinator keeps {} entries with {} for rank {}, and no more than {} "
                        "entries and {} for one rank of this job",
                        kept.entries, format_bytes(static_cast<double>(kept.bytes)), rank.value(),
                        most_entries, format_bytes(static_cast<double>(most_bytes)))};
  }
  ++kept.entries;
  kept.bytes += bytes;
  return Status::ok();
}

void Allowance::refund(Rank rank, std::size_t bytes) {
  Kept& kept = kept_[rank.index()];
  --kept.entries;
  kept.bytes -= bytes;
}

}  // namespace dunlin::bootstrap
