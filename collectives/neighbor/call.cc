#include "collectives/neighbor/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "collectives/kernels/element_limit.h"
#include "runtime/overlap.h"

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
  if (call.count > kMostElements) {
    return {Code::kInvalidArgument, fmt::format("'{}': {} elements, at most {} are possible",
                                                call.name, call.count, kMostElements)};
  }
  if (!is_reduction) return Status::ok();
  if (is_integer(call.type)) {
    return {
        Code::kInvalidArgument,
        fmt::format("an average of {}: only floating-point types have one", to_string(call.type))};
  }
  const std::size_t bytes = call.count * size_of(call.type);
  if (call.input != call.output && overlap(call.input, bytes, call.output, bytes)) {
    return {Code::kInvalidArgument, "input and output overlap"};
  }
  return Status::ok();
}

}  // namespace neighbor
}  // namespace dunlin::collective
