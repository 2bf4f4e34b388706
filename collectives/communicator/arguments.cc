#include "collectives/communicator/arguments.h"

#include <fmt/format.h>

#include <cstddef>

#include "collectives/kernels/element_limit.h"
#include "collectives/schedule/problem.h"
#include "runtime/overlap.h"

namespace dunlin::collective {

Status check_overlap(const Call& call, int rank, int size) {
  const Problem problem{call.collective, size, call.count, call.root};
  if (problem.is_rooted() && call.root != rank) return Status::ok();  // it uses one of them
  const std::size_t element = size_of(call.reduction.type);
  if (!overlap(call.input, problem.input_count() * element, call.output,
               problem.output_count() * element))
    return Status::ok();
  const bool is_gather = call.collective == Collective::kAllGather;
  const auto* const inner = static_cast<const std::byte*>(is_gather ? call.input : call.output);
  const auto* const outer = static_cast<const std::byte*>(is_gather ? call.output : call.input);
  const std::size_t within = problem.in_place_offset(rank) * element;
  const bool can_be_in_place = call.collective != Collective::kAllToAll;
  if (can_be_in_place && inner == outer + within) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("{}: input and output overlap{}", to_string(call.collective),
                      can_be_in_place ? ", but not as they do in place" : "")};
}

Status check_arguments(const Call& call, int rank, int size) {
  if (call.root < 0 || call.root >= size) {
    return {Code::kOutOfRange, fmt::format("{}: there is no root {} among {} members",
                                           to_string(call.collective), call.root, size)};
  }
  const bool has_result = call.collective != Collective::kReduce || call.root == rank;
  if (call.count > 0 && (call.input == nullptr || (call.output == nullptr && has_result)))
    return {Code::kInvalidArgument,
            fmt::format("{}: the call passes no memory", to_string(call.collective))};
  if (call.count > kMostElements) {
    return {Code::kInvalidArgument,
            fmt::format("{} of {} elements, at most {} are possible", to_string(call.collective),
                        call.count, kMostElements)};
  }
  return check_overlap(call, rank, size);
}

}  // namespace dunlin::collective
