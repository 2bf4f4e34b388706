#include "tools/dunlin-sim/network/schedule_world.h"

#include <fmt/format.h>

#include "tools/dunlin-sim/network/schedule_rank.h"
#include "tools/lib/progress.h"

namespace dunlin::simulate {

Result<std::unique_ptr<ScheduleWorld>> ScheduleWorld::create(const Scenario& scenario,
                                                             const ScheduleOptions& options) {
  std::unique_ptr<ScheduleWorld> world(new ScheduleWorld(scenario, options));
  DUNLIN_TRY(world->start());
  return world;
}

ScheduleWorld::ScheduleWorld(const Scenario& scenario, const ScheduleOptions& options)
    : scenario_(scenario), options_(options), pattern_(options.problem.size) {}

ScheduleWorld::~ScheduleWorld() = default;

Status ScheduleWorld::start() {
  DUNLIN_ASSIGN(network_, scenario_.make_network());
  steps_.resize(static_cast<std::size_t>(scenario_.steps));
  ranks_.reserve(static_cast<std::size_t>(options_.problem.size));
  const SteadyClock clock;
  tools::Progress progress(clock);
  std::size_t bytes = 0;
  for (int rank = 0; rank < options_.problem.size; ++rank) {
    DUNLIN_ASSIGN(auto program, collective::generate(*options_.algorithm, options_.problem,
                                                     options_.shape, rank));
    ranks_.push_back(std::make_unique<ScheduleRank>(*this, std::move(program)));
    bytes += ranks_.back()->bytes();
    progress.show([&] {
      return fmt::format("generated the programs of {} of {} ranks", rank + 1,
                         options_.problem.size);
    });
  }
  is_phantom_ = options_.is_phantom.value_or(bytes > kMostReal);
  for (const auto& rank : ranks_) DUNLIN_TRY(rank->prepare(*network_));
  for (const auto& rank : ranks_) DUNLIN_TRY(rank->connect());
  return Status::ok();
}

Status ScheduleWorld::run(Report& report) {
  std::vector<Stepper*> steppers;
  for (const auto& rank : ranks_) steppers.push_back(rank.get());
  return run_steps(scenario_, *network_, steppers, report);
}

std::size_t ScheduleWorld::most_program_steps() const {
  std::size_t most = 0;
  for (const auto& rank : ranks_) most = std::max(most, rank->program().steps.size());
  return most;
}

std::size_t ScheduleWorld::most_scratch() const {
  std::size_t most = 0;
  for (const auto& rank : ranks_) most = std::max(most, rank->program().scratch);
  return most;
}

bool ScheduleWorld::waits_for(Rank from, Rank gone) const {
  // Each rank waits for one peer at a time. A cycle of ranks waits for none that is gone.
  for (std::size_t hops = 0; hops < ranks_.size(); ++hops) {
    const ScheduleRank& rank = *ranks_[from.index()];
    if (rank.has_failed()) return true;
    if (!rank.executor().is_running()) return false;
    const Rank next = rank.executor().awaited();
    if (next == gone) return true;
    if (next == Rank()) return false;
    from = next;
  }
  return false;
}

}  // namespace dunlin::simulate
