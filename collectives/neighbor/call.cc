#include "collectives/neighbor/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace dunlin::collective {

void set_neighbors(NeighborCall& call, const Neighborhood& neighborhood) {
  call.self_weight = neighborhood.self_weight;
  call.sources.clear();
  call.destinations.clear();
  for (std::size_t i = 0; i < neighborhood.in.size(); ++i) {
    call.sources.push_back({neighborhood.in[i], neighborhood.in_weights[i]});
  }
  for (const Rank to : neighborhood.out) call.destinations.push_back({to, 1.0});
}

namespace neighbor {
namespace {

Status check(const std::vector<WeightedRank>& ranks, const char* which, Rank self, int size) {
  std::set<Rank> seen;
  for (const WeightedRank& each : ranks) {
    const int value = each.rank.value();
    if (value < 0 || value >= size) {
      return {Code::kOutOfRange, fmt::format("{} {} in a job of {}", which, value, size)};
    }
    if (each.rank == self) {
      return {Code::kInvalidArgument, fmt::format("{} {} is this rank itself", which, value)};
    }
    if (!seen.insert(each.rank).second) {
      return {Code::kInvalidArgument, fmt::format("{} {} twice", which, value)};
    }
  }
  return Status::ok();
}

bool overlap(const std::byte* a, const std::byte* b, std::size_t size) {
  return a < b + size && b < a + size;
}

}  // namespace

std::vector<WeightedRank> clockwise(std::vector<WeightedRank> ranks, Rank self, int size) {
  std::ranges::sort(ranks, {}, [&](const WeightedRank& each) {
    return (each.rank.value() - self.value() + size) % size;
  });
  return ranks;
}

Status check(const NeighborCall& call, bool is_reduction, Rank self, int size) {
  DUNLIN_TRY(check(call.sources, "source", self, size));
  DUNLIN_TRY(check(call.destinations, "destination", self, size));
  if (!is_reduction) return Status::ok();
  if (is_integer(call.type)) {
    return {
        Code::kInvalidArgument,
        fmt::format("an average of {}: only floating-point types have one", to_string(call.type))};
  }
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const output = static_cast<const std::byte*>(call.output);
  if (input != output && overlap(input, output, call.count * size_of(call.type))) {
    return {Code::kInvalidArgument, "input and output overlap"};
  }
  return Status::ok();
}

}  // namespace neighbor
}  // namespace dunlin::collective
