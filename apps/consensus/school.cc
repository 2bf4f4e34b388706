#include "apps/consensus/school.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dunlin::consensus {
namespace {

// The school begins within this distance of the origin, and the predator at its edge. The school
// then has a side to flee to, and one from which it has to close in.
constexpr double kSchoolRadius = 1.5;
constexpr Point kPredator{1.5, 0};
constexpr double kPredatorCircle = 1;

// The share of the difference between desired and actual velocity that a fish makes up for in a
// step. A fish turns around in about 10 steps, half a second.
constexpr double kTurn = 0.1;
// Shares of the full speed, at most.
constexpr double kApart = 1;  // where fish almost touch
constexpr double kAlign = 0.3;
constexpr double kAround = 0.5;  // around the predator
constexpr double kSpread = 0.6;  // along the ring, away from neighbors
// How fast a fish swims to the ring: at full speed if it is half a meter or more away.
constexpr double kToRing = 2;

Point direction(Point from) {
  const double length = from.length();
  return length > 0 ? (1 / length) * from : Point{1, 0};
}

Point cut(Point velocity, double speed) {
  const double length = velocity.length();
  return length > speed ? (speed / length) * velocity : velocity;
}

}  // namespace

double Point::length() const {
  return std::hypot(x, y);
}

const char* to_string(Behavior behavior) {
  return behavior == Behavior::kDisperse ? "disperse" : "encircle";
}

Result<School> School::create(const SchoolOptions& options, int rank, int ranks) {
  for (const auto& [name, value, least] : {std::tuple{"sight", options.sight, 1e-9},
                                           {"comfort", options.comfort, 1e-9},
                                           {"ring", options.ring, 1e-9},
                                           {"safe distance", options.safe, 1e-9},
                                           {"speed", options.speed, 1e-9},
                                           {"predator's speed", options.predator_speed, 0.0},
                                           {"noise", options.noise, 0.0},
                                           {"learning rate", options.learning_rate, 1e-9},
                                           {"time step", options.time_step, 1e-9}}) {
    if (!(value >= least) || !std::isfinite(value)) {
      return Status(Code::kInvalidArgument, fmt::format("the {} is {}, not {}", name, value,
                                                        least == 0 ? "0 or more" : "above 0"));
    }
  }
  if (options.learning_rate >= 2) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a learning rate of {}: estimates grow without bounds from 2 on",
                              options.learning_rate));
  }
  if (options.fish_per_rank < 1) {
    return Status(Code::kInvalidArgument, "every rank needs a fish at least");
  }
  return School(options, rank, ranks);
}

School::School(const SchoolOptions& options, int rank, int ranks)
    : options_(options),
      rank_(rank),
      ranks_(ranks),
      random_(options.seed, static_cast<std::uint64_t>(rank)) {
  for (int fish = 0; fish < options_.fish_per_rank; ++fish) {
    const double angle = 2 * M_PI * random_.uniform();
    const double radius = kSchoolRadius * std::sqrt(random_.uniform());
    const Point position{radius * std::cos(angle), radius * std::sin(angle)};
    const Point velocity{0.2 * options_.speed * random_.normal(),
                         0.2 * options_.speed * random_.normal()};
    motions_.push_back({position, cut(velocity, options_.speed)});
    // No estimate is known yet.
    estimates_.push_back(position);
  }
  place_predator();
}

void School::place_predator() {
  const double time = static_cast<double>(step_) * options_.time_step;
  const double angle = options_.predator_speed * time / kPredatorCircle;
  predator_ =
      kPredator + Point{kPredatorCircle * std::sin(angle), kPredatorCircle * (1 - std::cos(angle))};
}

void School::look(std::span<const Motion> all) {
  all_.assign(all.begin(), all.end());
  degrees_.assign(all.size(), 0);
  neighbors_.assign(motions_.size(), {});
  const auto first = static_cast<std::size_t>(number(0));
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (i == j || (all[i].position - all[j].position).length() > options_.sight) continue;
      ++degrees_[i];
      if (i >= first && i < first + motions_.size()) {
        neighbors_[i - first].push_back(static_cast<int>(j));
      }
    }
  }
}

std::vector<int> School::neighbor_ranks() const {
  std::vector<bool> is_near(static_cast<std::size_t>(ranks_));
  for (const auto& neighbors : neighbors_) {
    for (const int fish : neighbors) {
      is_near[static_cast<std::size_t>(fish / options_.fish_per_rank)] = true;
    }
  }
  is_near[static_cast<std::size_t>(rank_)] = false;
  std::vector<int> ranks;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (is_near[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

void School::learn() {
  for (std::size_t i = 0; i < motions_.size(); ++i) {
    const Point offset = motions_[i].position - predator_;
    const double measured = offset.length() * (1 + options_.noise * random_.normal());
    const double angle = std::atan2(offset.y, offset.x) + options_.noise * random_.normal();
    const Point u{std::cos(angle), std::sin(angle)};
    const double residual = measured - u.dot(motions_[i].position - estimates_[i]);
    estimates_[i] += (-options_.learning_rate * residual) * u;
  }
}

void School::average(std::span<const Point> all) {
  for (std::size_t i = 0; i < motions_.size(); ++i) {
    const auto own = static_cast<std::size_t>(number(i));
    double self = 1;
    Point sum;
    for (const int neighbor : neighbors_[i]) {
      const auto other = static_cast<std::size_t>(neighbor);
      const double weight = 1 / (1 + static_cast<double>(std::max(degrees_[own], degrees_[other])));
      self -= weight;
      sum += weight * all[other];
    }
    estimates_[i] = self * estimates_[i] + sum;
  }
}

Point School::away_from_neighbors(std::size_t own) const {
  Point sum;
  for (const int neighbor : neighbors_[own]) {
    const Point offset = motions_[own].position - all_[static_cast<std::size_t>(neighbor)].position;
    const double nearness = 1 - offset.length() / options_.comfort;
    if (nearness > 0) sum += nearness * direction(offset);
  }
  return kApart * options_.speed * sum;
}

Point School::away_from_predator(std::size_t own) const {
  const Point offset = motions_[own].position - estimates_[own];
  if (offset.length() >= options_.safe) return {};
  return options_.speed * direction(offset);
}

Point School::around_predator(std::size_t own) const {
  const Point offset = motions_[own].position - estimates_[own];
  const Point outwards = direction(offset);
  const Point along{-outwards.y, outwards.x};
  // Neighbors ahead and behind push with the inverse of their distance. The forces balance at equal
  // distances.
  double push = 0;
  for (const int neighbor : neighbors_[own]) {
    const Point from = motions_[own].position - all_[static_cast<std::size_t>(neighbor)].position;
    push +=
        along.dot(direction(from)) * options_.comfort / std::max(from.length(), options_.comfort);
  }
  const double radial = std::clamp(kToRing * (options_.ring - offset.length()), -1.0, 1.0);
  const double spread = std::clamp(push, -1.0, 1.0);
  return options_.speed * (radial * outwards + (kAround + kSpread * spread) * along);
}

Point School::desired(std::size_t own) const {
  Point velocity = away_from_neighbors(own);
  if (options_.behavior == Behavior::kEncircle) return velocity + around_predator(own);
  const Point flight = away_from_predator(own);
  velocity += flight;
  // Fish that are safe come to rest; fleeing fish swim with their neighbors.
  if (flight == Point{} || neighbors_[own].empty()) return velocity;
  Point mean;
  for (const int neighbor : neighbors_[own]) {
    mean += all_[static_cast<std::size_t>(neighbor)].velocity;
  }
  return velocity + (kAlign / static_cast<double>(neighbors_[own].size())) * mean;
}

void School::swim() {
  for (std::size_t i = 0; i < motions_.size(); ++i) {
    Motion& motion = motions_[i];
    const Point wanted = cut(desired(i), options_.speed);
    motion.velocity += kTurn * (wanted - motion.velocity);
    motion.position += options_.time_step * motion.velocity;
  }
  ++step_;
  place_predator();
}

}  // namespace dunlin::consensus
