// The command fish-school. Every rank simulates some of the fish.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/consensus/program/runs.h"

namespace dunlin::consensus {
namespace {

Json pair(Point point) {
  return Json::array({point.x, point.y});
}

class FishSchool {
 public:
  FishSchool(Setting& setting, School school)
      : setting_(setting),
        school_(std::move(school)),
        motions_(static_cast<std::size_t>(setting.fabric.size()) * school_.motions().size()),
        estimates_(motions_.size()) {}

  Status prepare();
  Status run();
  Status report();

 private:
  // Describes all fish at the end of a step, seen from outside.
  struct Summary {
    double nearest = 0;  // distance from the predator
    double mean = 0;
    double farthest = 0;
    double estimate_error = 0;  // rms over all fish
  };
  Status see();
  Status exchange_estimates();
  Status tell();
  Summary summarize() const;

  Setting& setting_;
  School school_;
  std::vector<Motion> motions_;   // of all fish
  std::vector<Point> estimates_;  // of all fish, where known
  std::unique_ptr<collective::NeighborExchange> exchange_;
};

Status FishSchool::prepare() {
  DUNLIN_ASSIGN(exchange_, collective::NeighborExchange::create(setting_.fabric, {}));
  const SchoolOptions& school = setting_.options.school;
  return setting_.output.event("config", {{"algorithm", name_of(setting_.options)},
                                          {"ranks", setting_.fabric.size()},
                                          {"behavior", to_string(school.behavior)},
                                          {"fish", motions_.size()},
                                          {"steps", setting_.options.iterations},
                                          {"time_step_s", school.time_step},
                                          {"sight", school.sight},
                                          {"ring", school.ring},
                                          {"safe", school.safe},
                                          {"seed", school.seed}});
}

// Stands for the eyes of the fish: every rank gets all positions and velocities. The estimates of
// the fish go to neighbors only.
Status FishSchool::see() {
  static_assert(sizeof(Motion) == 4 * sizeof(double) && sizeof(Point) == 2 * sizeof(double));
  return setting_.communicator.all_gather(school_.motions().data(), motions_.data(),
                                          4 * school_.motions().size(),
                                          collective::DataType::kFloat64);
}

Status FishSchool::exchange_estimates() {
  const std::size_t count = school_.estimates().size();
  collective::NeighborCall call{.name = "estimates",
                                .input = school_.estimates().data(),
                                .count = 2 * count,
                                .type = collective::DataType::kFloat64};
  for (const int rank : school_.neighbor_ranks()) call.sources.push_back({Rank(rank)});
  call.destinations = call.sources;  // nearness is symmetric
  std::vector<Bytes> gathered;
  DUNLIN_TRY(exchange_->gather(call, gathered));
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    std::memcpy(&estimates_[call.sources[i].rank.index() * count], gathered[i].data(),
                count * sizeof(Point));
  }
  std::copy(school_.estimates().begin(), school_.estimates().end(),
            &estimates_[setting_.fabric.rank().index() * count]);
  return Status::ok();
}

FishSchool::Summary FishSchool::summarize() const {
  Summary summary{.nearest = std::numeric_limits<double>::infinity()};
  const auto fish = static_cast<double>(motions_.size());
  double squares = 0;
  for (std::size_t i = 0; i < motions_.size(); ++i) {
    const double distance = (motions_[i].position - school_.predator()).length();
    summary.nearest = std::min(summary.nearest, distance);
    summary.farthest = std::max(summary.farthest, distance);
    summary.mean += distance / fish;
    const Point error = estimates_[i] - school_.predator();
    squares += error.dot(error) / fish;
  }
  summary.estimate_error = std::sqrt(squares);
  return summary;
}

// Reports the current state of all fish. Collective.
Status FishSchool::tell() {
  DUNLIN_TRY(see());
  DUNLIN_TRY(setting_.communicator.all_gather(school_.estimates().data(), estimates_.data(),
                                              2 * school_.estimates().size(),
                                              collective::DataType::kFloat64));
  if (!setting_.output.is_teller()) return Status::ok();
  Json positions = Json::array();
  Json velocities = Json::array();
  Json estimates = Json::array();
  for (std::size_t i = 0; i < motions_.size(); ++i) {
    positions.push_back(pair(motions_[i].position));
    velocities.push_back(pair(motions_[i].velocity));
    estimates.push_back(pair(estimates_[i]));
  }
  const Summary summary = summarize();
  const double time = static_cast<double>(school_.step()) * setting_.options.school.time_step;
  DUNLIN_TRY(setting_.output.event("fish", {{"step", school_.step()},
                                            {"time_s", time},
                                            {"predator", pair(school_.predator())},
                                            {"positions", positions},
                                            {"velocities", velocities},
                                            {"estimates", estimates},
                                            {"estimate_error", summary.estimate_error},
                                            {"distance_min", summary.nearest},
                                            {"distance_mean", summary.mean},
                                            {"distance_max", summary.farthest}}));
  constexpr std::uint64_t kRows = 10;
  const std::uint64_t steps = setting_.options.iterations;
  const std::uint64_t every = std::max<std::uint64_t>(
      setting_.options.record_every,
      steps / kRows / setting_.options.record_every * setting_.options.record_every);
  if (school_.step() % every != 0 && school_.step() != steps) return Status::ok();
  return setting_.output.say(fmt::format("{:>10.2f}  {:>12.4f}  {:>8.3f}  {:>8.3f}  {:>8.3f}", time,
                                         summary.estimate_error, summary.nearest, summary.mean,
                                         summary.farthest));
}

Status FishSchool::run() {
  const Options& options = setting_.options;
  DUNLIN_TRY(setting_.output.say(
      fmt::format("{} fish in {} ranks {} a predator\n{:>10}  {:>12}  {:>8}  {:>8}  {:>8}",
                  motions_.size(), setting_.fabric.size(),
                  options.school.behavior == Behavior::kDisperse ? "flee from" : "encircle",
                  "time / s", "estimate off", "nearest", "mean", "farthest")));
  DUNLIN_TRY(tell());
  for (std::uint64_t step = 1; step <= options.iterations; ++step) {
    setting_.fabric.begin_step(step);
    DUNLIN_TRY(see());
    school_.look(motions_);
    school_.learn();
    DUNLIN_TRY(exchange_estimates());
    school_.average(estimates_);
    school_.swim();
    if (step % options.record_every == 0 || step == options.iterations) DUNLIN_TRY(tell());
  }
  transport::Fabric& fabric = setting_.fabric;
  return fabric.bootstrap().barrier("fish-school", fabric.config().deadline);
}

Status FishSchool::report() {
  const Summary summary = summarize();
  return setting_.output.event("final", {{"step", school_.step()},
                                         {"estimate_error", summary.estimate_error},
                                         {"distance_min", summary.nearest},
                                         {"distance_mean", summary.mean},
                                         {"distance_max", summary.farthest}});
}

}  // namespace

Result<bool> run_fish_school(Setting& setting) {
  DUNLIN_ASSIGN(School school, School::create(setting.options.school, setting.fabric.rank().value(),
                                              setting.fabric.size()));
  FishSchool fish(setting, std::move(school));
  DUNLIN_TRY(fish.prepare());
  DUNLIN_TRY(fish.run());
  DUNLIN_TRY(fish.report());
  return true;
}

}  // namespace dunlin::consensus
