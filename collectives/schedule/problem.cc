#include "collectives/schedule/problem.h"

#include <fmt/format.h>

namespace dunlin::collective {

const char* to_string(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kReduce:
      return "reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kBarrier:
      return "barrier";
  }
  return "unknown";
}

Result<Collective> parse_collective(std::string_view name) {
  for (const Collective collective : kAllCollectives) {
    if (name == to_string(collective)) return collective;
  }
  return Status(Code::kInvalidArgument, fmt::format("'{}' is not a collective", name));
}

std::size_t Problem::input_count() const {
  const bool is_per_rank =
      collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  return is_per_rank ? count * static_cast<std::size_t>(size) : count;
}

std::size_t Problem::output_count() const {
  const bool is_per_rank =
      collective == Collective::kAllGather || collective == Collective::kAllToAll;
  return is_per_rank ? count * static_cast<std::size_t>(size) : count;
}

bool Problem::reduces() const {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

std::size_t Problem::in_place_offset(int rank) const {
  const bool is_per_rank =
      collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  return is_per_rank ? count * static_cast<std::size_t>(rank) : 0;
}

}  // namespace dunlin::collective
