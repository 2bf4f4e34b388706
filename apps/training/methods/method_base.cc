#include "apps/training/methods/method_base.h"

#include <fmt/format.h>

namespace dunlin::training {
namespace {

const char* describe(int phase) {
  static constexpr const char* kWords[] = {"between iterations", "in begin()",  "computing",
                                           "in finish()",        "in leave()", "a server",
                                           "one that has left"};
  return kWords[phase];
}

}  // namespace

Status MethodBase::enter(Phase from, Phase to, const char* what) {
  if (error_.is_error()) return error_;
  if (phase_ != from) {
    return {Code::kInvalidArgument,
            fmt::format("{} of a worker that is {}", what, describe(static_cast<int>(phase_)))};
  }
  phase_ = to;
  began_ = fabric_.clock().now();
  return Status::ok();
}

Status MethodBase::keep(Status status) {
  if (status.is_error() && !error_.is_error()) error_ = status;
  return status;
}

bool MethodBase::is_waiting() const {
  return phase_ == Phase::kBeginning || phase_ == Phase::kFinishing || phase_ == Phase::kLeaving ||
         phase_ == Phase::kServing;
}

Status MethodBase::begin(std::uint64_t iteration) {
  DUNLIN_TRY(enter(Phase::kIdle, Phase::kBeginning, "begin()"));
  return keep(start_begin(iteration));
}

Status MethodBase::ready(std::size_t first, std::size_t count) {
  DUNLIN_TRY(enter(Phase::kComputing, Phase::kComputing, "ready()"));
  DUNLIN_TRY(check_range({first, count}, options_.count));
  return keep(start_part({first, count}));
}

Status MethodBase::finish(float learning_rate, bool stop) {
  DUNLIN_TRY(enter(Phase::kComputing, Phase::kFinishing, "finish()"));
  wants_stop_ = stop;
  return keep(start_finish(learning_rate));
}

Status MethodBase::leave() {
  DUNLIN_TRY(enter(Phase::kIdle, Phase::kLeaving, "leave()"));
  return keep(start_leave());
}

void MethodBase::progress() {
  if (error_.is_error()) return;
  const Status status = keep(advance());
  if (!status.is_ok() || !is_waiting()) return;
  if (phase_ == Phase::kBeginning || phase_ == Phase::kFinishing)
    report_.waited += fabric_.clock().now() - began_;
  if (phase_ == Phase::kBeginning) {
    phase_ = Phase::kComputing;
  } else if (phase_ == Phase::kFinishing) {
    ++report_.iterations;
    phase_ = Phase::kIdle;
  } else {
    phase_ = Phase::kOver;
  }
}

Status MethodBase::test() {
  progress();
  if (error_.is_error()) return error_;
  return is_waiting() ? Status::busy() : Status::ok();
}

std::vector<Rank> MethodBase::all_ranks() const {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < fabric_.size(); ++rank) ranks.emplace_back(rank);
  return ranks;
}

Result<transport::LocalSlice> slice_of(const transport::LocalRegion& region, ModelRange range) {
  return region.slice(range.first * sizeof(float), range.count * sizeof(float));
}

}  // namespace dunlin::training
