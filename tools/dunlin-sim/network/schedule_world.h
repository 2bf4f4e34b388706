// ScheduleWorld: ranks that run the programs of one collective on light nodes. Their memory is real
// and checked, or phantom: then tens of thousands of ranks and vectors of any size fit.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/schedule/algorithm.h"
#include "tools/dunlin-sim/commands/pattern.h"
#include "tools/dunlin-sim/network/world.h"
#include "transports/sim/node.h"

namespace dunlin::simulate {

struct ScheduleOptions {
  collective::Problem problem;
  const collective::Algorithm* algorithm = nullptr;
  collective::Shape shape;
  double gamma = 0;                // seconds for a byte that a rank adds or copies
  Duration skew{};                 // each rank begins at a random time between 0 and this
  std::optional<bool> is_phantom;  // default: when real memory would exceed kMostReal
};

// When the ranks did the step with the same number.
struct StepFigures {
  TimePoint first_start = TimePoint::max();
  TimePoint last_end{};
  Samples took;
};

class ScheduleRank;

class ScheduleWorld {
 public:
  static Result<std::unique_ptr<ScheduleWorld>> create(const Scenario& scenario,
                                                       const ScheduleOptions& options);
  ~ScheduleWorld();
  ScheduleWorld(const ScheduleWorld&) = delete;
  ScheduleWorld& operator=(const ScheduleWorld&) = delete;

  Status run(Report& report);
  const std::vector<StepFigures>& steps() const { return steps_; }
  bool is_phantom() const { return is_phantom_; }
  // The steps, and the scratch, of the program that has the most of them.
  std::size_t most_program_steps() const;
  std::size_t most_scratch() const;  // elements

  // The most bytes of real memory that all ranks together get by default.
  static constexpr std::size_t kMostReal = std::size_t{1} << 30;

 private:
  friend class ScheduleRank;

  ScheduleWorld(const Scenario& scenario, const ScheduleOptions& options);
  Status start();
  bool is_checked() const { return scenario_.checks && !is_phantom_; }
  const Pattern& pattern() const { return pattern_; }
  Duration draw_skew() { return random_.uniform(options_.skew); }
  // Whether `from` waits for `gone`, directly or through other ranks, or for a rank that has ended
  // because of the death.
  bool waits_for(Rank from, Rank gone) const;

  const Scenario& scenario_;
  ScheduleOptions options_;
  Pattern pattern_;
  bool is_phantom_ = false;
  transport::sim::Random random_{scenario_.network.seed};
  std::unique_ptr<transport::sim::Network> network_;
  std::vector<std::unique_ptr<ScheduleRank>> ranks_;
  std::vector<StepFigures> steps_;
};

}  // namespace dunlin::simulate
