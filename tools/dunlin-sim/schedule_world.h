// ScheduleWorld: ranks that carry out the programs of one collective on light nodes: with memory
// that is checked, or with phantom memory, in which case tens of thousands of ranks and any vector
// fit.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/schedule/algorithm.h"
#include "tools/dunlin-sim/pattern.h"
#include "tools/dunlin-sim/world.h"
#include "transports/sim/node.h"

namespace dunlin::simulate {

struct ScheduleOptions {
  collective::Problem problem;
  const collective::Algorithm* algorithm = nullptr;
  collective::Shape shape;
  double gamma = 0;                // seconds per byte that a rank adds to another, or copies
  Duration skew{};                 // each rank begins somewhere between 0 and this
  std::optional<bool> is_phantom;  // by default where real memory would be more than kMostReal
};

// When the ranks did one of their steps.
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
  // Of the program with the most.
  std::size_t most_program_steps() const;
  std::size_t most_scratch() const;  // elements

  // Bytes of all ranks together.
  static constexpr std::size_t kMostReal = std::size_t{1} << 30;

 private:
  friend class ScheduleRank;

  ScheduleWorld(const Scenario& scenario, const ScheduleOptions& options);
  Status start();
  bool is_checked() const { return scenario_.checks && !is_phantom_; }
  const Pattern& pattern() const { return pattern_; }
  Duration draw_skew() { return random_.uniform(options_.skew); }
  // Whether `from` waits for `gone`, or for somebody who does, or whom the loss has ended.
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
