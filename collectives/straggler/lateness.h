// Lateness: when a step of the straggler-aware ring counts as late (Zhang et al., "Communication
// Optimization Technology of Distributed Machine Learning Network", 2024, section 2.2).
//
// With T the usual time of a step (receive, reduce, send) and T_trans that of a transfer, a rank is
// late when its step took longer than alpha * T, and its successor waits for it for
// alpha * T + T_trans. Fixed: T and T_trans are given. Adaptive: a rank learns T from its own steps
// and T + T_trans from the gaps between what comes from its predecessor, each as median + k * MAD,
// so that no clocks need to agree; it waits for (T + T_trans) + (alpha - 1) * T. Until enough was
// seen nobody is late. Owner thread only.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/recent_times.h"
#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::collective {

enum class LatenessMode : std::uint8_t {
  kNever,  // nobody is ever late: the plain ring
  kFixed,
  kAdaptive,
};

struct LatenessOptions {
  LatenessMode mode = LatenessMode::kAdaptive;
  double alpha = 2.0;   // above 1
  Duration step{};      // T, if fixed
  Duration transfer{};  // T_trans, if fixed
  // Adaptive only: nothing shorter counts as late. Where ranks share cores a step may lose the core
  // at any time, and to be sent around for that costs more messages than it gains.
  Duration floor = std::chrono::microseconds(50);
};

class Lateness {
 public:
  // kInvalidArgument: an alpha of at most 1, or fixed without a step time.
  static Status check(const LatenessOptions& options);
  explicit Lateness(const LatenessOptions& options);

  bool is_late(Duration step) const { return longest_step_ && step > *longest_step_; }
  // How long to wait for a predecessor; nothing: for ever.
  std::optional<Duration> patience() const { return patience_; }

  void record_step(Duration step);
  // From one message that was waited for to the next.
  void record_gap(Duration gap);

 private:
  static constexpr std::size_t kMinimum = 16;  // of each, before anybody counts as late
  static constexpr int kDeviations = 3;

  void update();

  LatenessOptions options_;
  std::optional<Duration> longest_step_;
  std::optional<Duration> patience_;
  RecentTimes steps_;
  RecentTimes gaps_;
};

}  // namespace dunlin::collective
