// The experiment of the paper on the straggler-aware ring (Zhang et al., 2024, section 3), with the
// library's own protocol in virtual time: N ranks in a ring, the second of which is slow; how long
// the reduce-scatter takes with the strategy and without.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::simulate {

// What the paper leaves open: how far a slow rank is slow.
enum class Slowness : std::uint8_t {
  kOneStep,        // in the step with the first chunk; its other steps go on beside it: the paper's
                   // figures
  kOneStepInTurn,  // in that step, and the others wait for it
  kEveryStep,      // in all its steps, which go on beside one another
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
  std::uint32_t depth = 8;         // slots: so many that nobody waits for one
  Slowness slowness = Slowness::kOneStep;

  // T_trans. Transfers don't get into one another's way, as in the paper; only so the
  // reduce-scatter can be looked at alone, as the all-gather of other chunks begins meanwhile.
  Duration transfer() const;
};

// How long the reduce-scatter takes whose slow steps take `extra` (the paper's delta T) longer.
// alpha 0: the plain ring. An error: wrong sums, a hang.
Result<Duration> simulate_straggler(const StragglerSetting& setting, double alpha, Duration extra);

// The same from the paper's equations (1) and (2). They follow the chunk of the slow step alone;
// the whole never takes less than without stragglers, predict_ring(setting, 0), as the others do.
Duration predict_ring(const StragglerSetting& setting, Duration extra);
Duration predict_gain(const StragglerSetting& setting, double alpha, Duration extra);

struct StragglerPoint {
  double alpha = 0;
  Duration extra{};
  Duration ring{};
  Duration strategy{};
  Duration ring_predicted{};
  Duration strategy_predicted{};

  double gain() const;  // share of the ring's time
  double gain_predicted() const;
};
Result<StragglerPoint> measure_straggler(const StragglerSetting& setting, double alpha,
                                         Duration extra);

struct StragglerFigures {
  std::vector<StragglerPoint> by_extra;  // for the alphas of the paper: its figures 7, 8 and 10
  std::vector<StragglerPoint> by_alpha;  // for some delta T: its figure 9
  struct Best {
    Slowness slowness{};
    StragglerPoint point;
  };
  std::vector<Best> best;  // by slowness
};
inline constexpr double kPaperAlphas[] = {1.5, 1.7, 2.0, 2.5};
inline constexpr double kPaperBestGain = 0.253;

Result<StragglerFigures> make_straggler_figures(const StragglerSetting& setting);
// Tables for people; rows for dunlin-plot, each with the `figure` it belongs to.
std::string to_text(const StragglerFigures& figures);
std::vector<nlohmann::ordered_json> to_json(const StragglerFigures& figures);

}  // namespace dunlin::simulate
