// MethodBase: the common part of all methods. It checks the order of calls, keeps the first error,
// and measures what iterations cost. A method adds the steps. Owner thread only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collectives/training/method.h"
#include "collectives/training/methods/pieces.h"

namespace dunlin::training {

// Tells whether the peer table has changed since the last call.
class PeerTableWatch {
 public:
  bool has_changed(const PeerTable& peers) {
    const std::uint64_t version = peers.version();
    return std::exchange(seen_, version) != version;
  }

 private:
  std::uint64_t seen_ = ~std::uint64_t{0};  // version; initially none
};

class MethodBase : public Method {
 public:
  Status begin(std::uint64_t iteration) final;
  Status ready(std::size_t first, std::size_t count) final;
  Status finish(float learning_rate, bool stop) final;
  Status leave() final;
  void progress() final;
  Status test() final;
  bool stopped() const final { return is_stopped_; }
  const MethodReport& report() const final { return report_; }
  std::span<float> velocity() override { return {}; }

 protected:
  enum class Phase : std::uint8_t {
    kIdle,       // before begin()
    kBeginning,  // begin() until test() reports the end
    kComputing,
    kFinishing,
    kLeaving,
    kServing,  // a server, from the start
    kOver,     // after leave()
  };
  // `first`: kServing for servers, kIdle for workers.
  MethodBase(transport::Fabric& fabric, MethodOptions options, Phase first = Phase::kIdle)
      : fabric_(fabric),
        options_(std::move(options)),
        phase_(first),
        members_(members_of(fabric, options_)) {}

  // Called at the beginning of a phase, when phase() is already the new one. An error is final.
  virtual Status start_begin(std::uint64_t) { return Status::ok(); }
  virtual Status start_part(ModelRange) { return Status::ok(); }
  virtual Status start_finish(float learning_rate) = 0;
  virtual Status start_leave() { return Status::ok(); }
  // True if this rank cannot continue without the other one, so that its death is an error.
  virtual bool is_needed(Rank) const { return true; }
  // Progresses everything, in any phase. Ok ends the phases kBeginning, kFinishing, kLeaving and
  // kServing; in the other phases it has no effect. An error is final.
  virtual Status advance() = 0;

  transport::Fabric& fabric() const { return fabric_; }
  const MethodOptions& options() const { return options_; }
  Phase phase() const { return phase_; }
  std::uint64_t iteration() const { return iteration_; }  // the argument of begin()
  bool wants_stop() const { return wants_stop_; }         // the argument of finish()
  void set_stopped(bool is_stopped) { is_stopped_ = is_stopped; }
  MethodReport& costs() { return report_; }
  // The ranks that take part, ascending.
  const std::vector<Rank>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }

 private:
  static std::vector<Rank> members_of(const transport::Fabric& fabric,
                                      const MethodOptions& options);
  Status enter(Phase from, Phase to, const char* what);
  Status keep(Status status);
  bool is_waiting() const;
  Status check_peers();
  Status explain(Status error);
  const Rank* find_dead() const;

  transport::Fabric& fabric_;
  const MethodOptions options_;
  Phase phase_;
  std::uint64_t iteration_ = 0;
  TimePoint began_{};
  bool wants_stop_ = false;
  bool is_stopped_ = false;
  MethodReport report_;
  Status error_;
  const std::vector<Rank> members_;
  PeerTableWatch peer_watch_;
  bool is_anybody_gone_ = false;
  Status unexplained_;  // an error that a death may have caused
  TimePoint unexplained_since_{};
};

// What each prepare_METHOD() does.
template <typename Kind>
Result<std::unique_ptr<Method>> prepare_method(transport::Fabric& fabric,
                                               const MethodOptions& options) {
  auto method = std::make_unique<Kind>(fabric, options);
  DUNLIN_TRY(method->prepare());
  return std::unique_ptr<Method>(std::move(method));
}

// Hands memory that lanes may still access to the fabric, which destroys it when it is done.
template <typename LaneState>
void keep_until_done(transport::Fabric& fabric, std::unique_ptr<LaneState> state) {
  if (state && !state->is_done()) fabric.keep_until_done(std::move(state));
}

// A put that was posted, until its memory may be reused.
struct Posted {
  transport::Completion completion;
  bool is_posted = false;
  bool is_done() const { return !is_posted || completion.is_done(); }
  // Returns the result. Only after is_done().
  Status take() {
    if (!std::exchange(is_posted, false)) return Status::ok();
    Status status = completion.status();
    completion.reset();
    return status;
  }
};

// The elements `range` of the floats at the beginning of a region.
Result<transport::LocalSlice> slice_of(const transport::LocalRegion& region, ModelRange range);
inline std::span<float> floats_of(const transport::LocalRegion& region, std::size_t count) {
  return {reinterpret_cast<float*>(region.data()), count};
}

}  // namespace dunlin::training
