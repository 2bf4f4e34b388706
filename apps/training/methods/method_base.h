// MethodBase: what all methods have in common: the order of calls, the error that stays, what
// iterations have cost. A method adds what its steps do. Owner thread only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/training/method.h"
#include "apps/training/methods/pieces.h"

namespace dunlin::training {

// Whether there is anything new in the peer table, since the last time one has asked.
class PeerNews {
 public:
  bool are_there(const PeerTable& peers) {
    const std::uint64_t version = peers.version();
    return std::exchange(seen_, version) != version;
  }

 private:
  std::uint64_t seen_ = ~std::uint64_t{0};  // version; at first none
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
    kBeginning,  // until test() reports the end
    kComputing,
    kFinishing,
    kLeaving,
    kServing,  // a server, from the start
    kOver,     // left
  };
  // `first`: kIdle, or kServing of servers.
  MethodBase(transport::Fabric& fabric, MethodOptions options, Phase first = Phase::kIdle)
      : fabric_(fabric),
        options_(std::move(options)),
        phase_(first),
        everybody_(ranks_of(fabric)) {}

  // What starts the steps; the phase is the new one already. An error stays.
  virtual Status start_begin(std::uint64_t) { return Status::ok(); }
  virtual Status start_part(ModelRange) { return Status::ok(); }
  virtual Status start_finish(float learning_rate) = 0;
  virtual Status start_leave() { return Status::ok(); }
  // Whether this rank can't go on without that one: its death is an error then.
  virtual bool is_needed(Rank) const { return true; }
  // Moves everything on, in any phase. Ok: what the phase (kBeginning, kFinishing, kLeaving,
  // kServing) stands for is over; in others it doesn't matter. An error stays.
  virtual Status advance() = 0;

  transport::Fabric& fabric() const { return fabric_; }
  const MethodOptions& options() const { return options_; }
  Phase phase() const { return phase_; }
  std::uint64_t iteration() const { return iteration_; }  // as begin() was told
  bool wants_stop() const { return wants_stop_; }         // as finish() was told
  void set_stopped(bool is_stopped) { is_stopped_ = is_stopped; }
  MethodReport& costs() { return report_; }
  const std::vector<Rank>& everybody() const { return everybody_; }

 private:
  static std::vector<Rank> ranks_of(const transport::Fabric& fabric);
  Status enter(Phase from, Phase to, const char* what);
  Status keep(Status status);
  bool is_waiting() const;
  Status look_for_losses();
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
  const std::vector<Rank> everybody_;
  PeerNews news_;
  bool is_anybody_gone_ = false;
  Status unexplained_;  // an error that a death may be behind
  TimePoint unexplained_since_{};
};

// What a fabric's lanes may hold on to outlives the method that made it: `wire` is retired unless
// it is done.
template <typename Wire>
void retire(transport::Fabric& fabric, std::unique_ptr<Wire> wire) {
  if (wire && !wire->is_done()) fabric.retire(std::move(wire));
}

// A posted operation of ours: whether its memory is free again.
struct Posted {
  transport::Completion completion;
  bool is_posted = false;
  bool is_done() const { return !is_posted || completion.is_done(); }
  // After is_done().
  Status take() {
    if (!std::exchange(is_posted, false)) return Status::ok();
    Status status = completion.status();
    completion.reset();
    return status;
  }
};

// Elements [range) of float memory at the beginning of a region.
Result<transport::LocalSlice> slice_of(const transport::LocalRegion& region, ModelRange range);
inline std::span<float> floats_of(const transport::LocalRegion& region, std::size_t count) {
  return {reinterpret_cast<float*>(region.data()), count};
}

}  // namespace dunlin::training
