// Lateness: when a step of the straggler-aware ring counts as late (Zhang et al., "Communication
// Optimization Technology of Distributed Machine Learning Network", 2024, section 2.2).
//
// Let T be the usual time of a step (receive, reduce, send) and T_trans that of a transfer. A rank
// is late when its step took longer than alpha * T. Its successor waits for it for
// alpha * T + T_trans.
//   - Fixed mode: T and T_trans are given.
//   - Adaptive mode: a rank learns T from its own steps, and T + T_trans from the gaps between the
//     messages of its predecessor, each as median + k * MAD. It waits for
//     (T + T_trans) + (alpha - 1) * T. No clocks have to agree. No rank counts as late before
//     enough steps and gaps were recorded.
// Owner thread only.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/waiting/recent_times.h"
#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::collective {

enum class LatenessMode : std::uint8_t {
  kNever,  // no rank is ever late: the plain ring
  kFixed,
  kAdaptive,
};

struct LatenessOptions {
  LatenessMode mode = LatenessMode::kAdaptive;
  double alpha = 2.0;   // above 1
  Duration step{};      // T, if fixed
  Duration transfer{};  // T_trans, if fixed
  // Adaptive mode only: a shorter step never counts as late. A step may lose its core at any time
  // when ranks share cores, and sending past a rank for that costs more messages than it saves.
  Duration floor = std::chrono::microseconds(50);
};

class Lateness {
 public:
  // kInvalidArgument: an alpha of at most 1, or fixed without a step time.
  static Status check(const LatenessOptions& options);
  explicit Lateness(const LatenessOptions& options);

  bool is_late(Duration step) const { return longest_step_ && step > *longest_step_; }
  // How long to wait for the predecessor; nullopt: without a limit.
  std::optional<Duration> timeout() const { return timeout_; }

  void record_step(Duration step);
  // Records the time between two messages of the predecessor.
  void record_gap(Duration gap);

 private:
  static constexpr std::size_t kMinimum =
      16;  // steps and gaps to record before a rank counts as late
  static constexpr int kDeviations = 3;

  void update();

  LatenessOptions options_;
  std::optional<Duration> longest_step_;
  std::optional<Duration> timeout_;
  RecentTimes steps_;
  RecentTimes gaps_;
};

}  // namespace dunlin::collective
