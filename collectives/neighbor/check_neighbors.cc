#include "collectives/neighbor/check_neighbors.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "collectives/waiting/outlasting.h"

namespace dunlin::collective {
namespace {

// What a rank says about another one.
constexpr std::uint8_t kReceives = 1;
constexpr std::uint8_t kSends = 2;
constexpr std::uint8_t kIsWrong = 4;  // about itself: its call is invalid

constexpr int kMostNamed = 4;

}  // namespace

namespace neighbor {

std::vector<std::uint8_t> claims_of(const NeighborCall& call, Rank self, int size) {
  std::vector<std::uint8_t> claims(static_cast<std::size_t>(size));
  if (check(call, false, self, size).is_ok()) {
    for (const WeightedRank& from : call.sources) claims[from.rank.index()] |= kReceives;
    for (const WeightedRank& to : call.destinations) claims[to.rank.index()] |= kSends;
  } else {
    claims[self.index()] = kIsWrong;
  }
  return claims;
}

Status compare_claims(std::span<const std::uint8_t> all, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  std::string differences;
  int count = 0;
  const auto note = [&](const std::string& text) {
    if (++count <= kMostNamed) differences += (differences.empty() ? "" : "; ") + text;
  };
  for (std::size_t from = 0; from < size; ++from) {
    if ((all[from * size + from] & kIsWrong) != 0) {
      note(fmt::format("rank {} names ranks that can't be its neighbors", from));
    }
    for (std::size_t to = 0; to < size; ++to) {
      const bool is_sent = (all[from * size + to] & kSends) != 0;
      const bool is_received = (all[to * size + from] & kReceives) != 0;
      if (is_sent && !is_received) {
        note(fmt::format("rank {} sends to rank {}, which does not expect it", from, to));
      }
      if (!is_sent && is_received) {
        note(fmt::format("rank {} expects rank {}, which does not send to it", to, from));
      }
    }
  }
  if (count == 0) return Status::ok();
  if (count > kMostNamed) differences += fmt::format("; and {} more", count - kMostNamed);
  return {Code::kInvalidArgument, fmt::format("neighbors don't match: {}", differences)};
}

}  // namespace neighbor

Status check_neighbors(Communicator& communicator, const NeighborCall& call) {
  const Rank self(communicator.rank());
  const int size = communicator.size();
  struct Buffers {
    std::vector<std::uint8_t> ours;
    std::vector<std::uint8_t> all;
  };
  Outlasting<Buffers> buffers;
  buffers->ours = neighbor::claims_of(call, self, size);
  const std::size_t count = buffers->ours.size();
  buffers->all.resize(count * count);
  Status status =
      communicator.all_gather(buffers->ours.data(), buffers->all.data(), count, DataType::kUint8);
  buffers.settle(communicator.fabric(), status);
  DUNLIN_TRY(std::move(status));
  DUNLIN_TRY(neighbor::check(call, false, self, size));
  return neighbor::compare_claims(buffers->all, size);
}

}  // namespace dunlin::collective
