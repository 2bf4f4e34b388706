#include "collectives/training/methods/method_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace dunlin::training {
namespace {

// A notice of a death takes milliseconds on one host and at most a heartbeat between hosts. An
// error that is not explained by then has another cause.
constexpr auto kNoticeTime = std::chrono::milliseconds(500);

const char* describe(int phase) {
  static constexpr const char* kWords[] = {"between iterations", "in begin()", "computing",
                                           "in finish()",        "in leave()", "a server",
                                           "gone after leave()"};
  return kWords[phase];
}

}  // namespace

Status MethodBase::enter(Phase from, Phase to, const char* what) {
  if (error_.is_error()) return error_;
  if (phase_ != from) {
    return {Code::kInvalidArgument, fmt::format("{} is called by a worker that is {}", what,
                                                describe(static_cast<int>(phase_)))};
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
  iteration_ = iteration;
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
  Status status = unexplained_.is_error() ? unexplained_ : advance();
  if (!status.is_error()) {
    if (Status death = check_peers(); death.is_error()) status = std::move(death);
  }
  if (status.is_error()) status = keep(explain(std::move(status)));
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

std::vector<Rank> MethodBase::members_of(const transport::Fabric& fabric,
                                         const MethodOptions& options) {
  if (!options.members.empty()) return options.members;
  std::vector<Rank> ranks;
  for (int rank = 0; rank < fabric.size(); ++rank) ranks.emplace_back(rank);
  return ranks;
}

const Rank* MethodBase::find_dead() const {
  const auto found = std::find_if(members_.begin(), members_.end(), [this](Rank rank) {
    return fabric_.peers().state(rank) == PeerState::kDead && is_needed(rank);
  });
  return found == members_.end() ? nullptr : &*found;
}

// Returns an error if a rank that is needed is dead, or has left although this rank waits for it.
Status MethodBase::check_peers() {
  if (peer_watch_.has_changed(fabric_.peers()))
    is_anybody_gone_ = fabric_.peers().is_anybody_gone();
  if (!is_anybody_gone_ || phase_ == Phase::kOver) return Status::ok();
  if (const Rank* const dead = find_dead()) return fabric_.peers().check(*dead);
  if (!is_waiting()) return Status::ok();
  for (const transport::Awaited& wait : awaited()) {
    if (is_needed(wait.peer) && !fabric_.peers().is_present(wait.peer))
      return fabric_.peers().check(wait.peer).with_context("waiting for " + wait.what);
  }
  return Status::ok();
}

// A peer may have closed its connection or left because another rank died, and that may arrive
// before the notice of the death. Returns kBusy while such a notice may still arrive.
Status MethodBase::explain(Status error) {
  const bool is_consequence = error.code() == Code::kNotFound || error.code() == Code::kPeerDead ||
                              error.code() == Code::kClosed;
  const auto peer = error.peer();
  const bool is_cause = peer && fabric_.peers().state(*peer) == PeerState::kDead;
  if (!is_consequence || is_cause) return error;
  if (const Rank* const dead = find_dead()) {
    return fabric_.peers().check(*dead).with_context(
        fmt::format("{} cannot continue", to_string(options_.kind)));
  }
  if (!unexplained_.is_error()) {
    unexplained_ = std::move(error);
    unexplained_since_ = fabric_.clock().now();
  }
  const bool is_too_late = fabric_.clock().now() - unexplained_since_ > kNoticeTime;
  return is_too_late ? unexplained_ : Status::busy();
}

Result<transport::LocalSlice> slice_of(const transport::LocalRegion& region, ModelRange range) {
  return region.slice(range.first * sizeof(float), range.count * sizeof(float));
}

}  // namespace dunlin::training
