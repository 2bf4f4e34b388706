// The experiment of the paper on the straggler-aware ring (Zhang et al., 2024, section 3), with the
// protocol of the library in virtual time. Of N ranks in a ring, the second is slow. The experiment
// times the reduce-scatter with the strategy and without it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::simulate {

// Which steps of a slow rank are slow; the paper does not say it.
enum class Slowness : std::uint8_t {
  kOneStep,  // the step with the first chunk, beside which its other steps continue: this gives
             // the figures of the paper
  kOneStepInTurn,  // that step, for which its other steps wait
  kEveryStep,      // all its steps, which continue beside one another
};
inline constexpr Slowness kSlownesses[] = {Slowness::kOneStep, Slowness::kOneStepInTurn,
                                           Slowness::kEveryStep};
const char* to_string(Slowness slowness);

struct StragglerSetting {
  int ranks = 4;
  Duration step = std::chrono::microseconds(3);  // T
  Duration latency = std::chrono::microseconds(5);
  double bandwidth = 12.5e9;       // bytes per second
  std::size_t chunk_bytes = 8192;  // a message
  std::uint32_t depth = 8;         // slots: enough that no rank waits for one
  Slowness slowness = Slowness::kOneStep;

  // T_trans. Transfers do not delay one another, as in the paper. This makes it possible to look at
  // the reduce-scatter alone, although the all-gather of other chunks begins meanwhile.
  Duration transfer() const;
};

// Simulates the reduce-scatter whose slow steps take `extra` (the paper's delta T) longer, and
// returns its time. alpha 0: the plain ring. Errors are wrong sums and hangs.
Result<Duration> simulate_straggler(const StragglerSetting& setting, double alpha, Duration extra);

// The same time by equations (1) and (2) of the paper. They follow only the chunk of the slow step.
// The whole never takes less than without stragglers, predict_ring(setting, 0), which the other
// chunks take.
Duration predict_ring(const StragglerSetting& setting, Duration extra);
Duration predict_gain(const StragglerSetting& setting, double alpha, Duration extra);

struct StragglerPoint {
  double alpha = 0;
  Duration extra{};
  Duration ring{};
  Duration strategy{};
  Duration ring_predicted{};
  Duration strategy_predicted{};

  double gain() const;  // relative to the time of the ring
  double gain_predicted() const;
};
Result<StragglerPoint> measure_straggler(const StragglerSetting& setting, double alpha,
                                         Duration extra);

struct StragglerFigures {
  std::vector<StragglerPoint> by_extra;  // for the alphas of the paper: figures 7, 8 and 10
  std::vector<StragglerPoint> by_alpha;  // for some delta T: figure 9
  struct Best {
    Slowness slowness{};
    StragglerPoint point;
  };
  std::vector<Best> best;  // for each Slowness
};
inline constexpr double kPaperAlphas[] = {1.5, 1.7, 2.0, 2.5};
inline constexpr double kPaperBestGain = 0.253;

Result<StragglerFigures> make_straggler_figures(const StragglerSetting& setting);
// Tables as text, and rows for dunlin-plot, each with the `figure` to which it belongs.
std::string to_text(const StragglerFigures& figures);
std::vector<nlohmann::ordered_json> to_json(const StragglerFigures& figures);

}  // namespace dunlin::simulate
