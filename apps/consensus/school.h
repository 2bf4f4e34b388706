// School: a school of fish that knows where a predator is though no fish does (BlueFog, section
// IV-B; Tu, Sayed: Cooperative prey herding based on diffusion adaptation, ICASSP 2011).
//
// In every step each fish measures its distance from the predator and the direction to it, both
// with noise, and improves its estimate w of the predator's position by one step of stochastic
// gradient descent on (d - u (x - w))^2 / 2, which tells about the direction u only. It then
// averages w with the fish within sight, with Metropolis-Hastings weights, and swims. Neighbours
// are others in every step.
//
// How fish swim, the usual terms of flocking (Reynolds 1987), each a desired velocity:
//   keep apart    from fish within `comfort`, the more the nearer
//   align         with the mean velocity of the neighbours, while fleeing
//   disperse      away from the estimate while it is nearer than `safe`; beyond it fish slow down
//   encircle      to the distance `ring` from the estimate, around it at half speed, and, along the
//                 ring, away from neighbours, such that the ring closes
// A fish turns by a share of the difference in each step, and swims no faster than `speed`.
//
// A School holds the fish of one rank, and sees those of all ranks as they are told to it. Owner
// thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/random.h"
#include "runtime/status.h"

namespace dunlin::consensus {

struct Point {
  double x = 0;
  double y = 0;
  friend Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
  friend Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
  friend Point operator*(double factor, Point a) { return {factor * a.x, factor * a.y}; }
  Point& operator+=(Point b) { return *this = *this + b; }
  double dot(Point b) const { return x * b.x + y * b.y; }
  double length() const;
  bool operator==(const Point&) const = default;
};

enum class Behavior { kDisperse, kEncircle };
const char* to_string(Behavior behavior);

// Lengths in metres, times in seconds.
struct SchoolOptions {
  Behavior behavior = Behavior::kEncircle;
  int fish_per_rank = 4;
  double sight = 3;  // fish within this distance are neighbours
  double comfort = 0.3;
  double ring = 2;             // to encircle at
  double safe = 6;             // far enough to stop fleeing
  double speed = 1;            // of a fish
  double predator_speed = 0;   // along a circle of radius 1
  double noise = 0.05;         // of angles (radians) and, relative, of distances: deviations
  double learning_rate = 0.5;  // of the estimate
  double time_step = 0.05;
  std::uint64_t seed = 1;
};

// What everybody can see of a fish.
struct Motion {
  Point position;
  Point velocity;
};

class School {
 public:
  // kInvalidArgument for what isn't above 0, or, of noise and the predator's speed, below it.
  static Result<School> create(const SchoolOptions& options, int rank, int ranks);

  // Of this rank; fish i of rank r is fish r * fish_per_rank + i of all.
  std::span<const Motion> motions() const { return motions_; }
  std::span<const Point> estimates() const { return estimates_; }
  Point predator() const { return predator_; }
  std::uint64_t step() const { return step_; }

  // A step, in this order.
  // 1. Who is near: `all` fish of all ranks.
  void look(std::span<const Motion> all);
  // The ranks, ascending and without this one, that have fish near ours; they have us in theirs.
  std::vector<int> neighbor_ranks() const;
  // 2. Measures, and improves estimates(), which neighbours now get.
  void learn();
  // 3. Averages: `all`: the estimates of all fish, those of neighbours suffice.
  void average(std::span<const Point> all);
  // 4. Swims; the predator as well.
  void swim();

 private:
  School(const SchoolOptions& options, int rank, int ranks);
  int number(std::size_t own) const {
    return rank_ * options_.fish_per_rank + static_cast<int>(own);
  }
  Point desired(std::size_t own) const;
  Point away_from_neighbors(std::size_t own) const;
  Point around_predator(std::size_t own) const;
  Point away_from_predator(std::size_t own) const;
  void place_predator();

  SchoolOptions options_;
  int rank_;
  int ranks_;
  Random random_;
  std::vector<Motion> motions_;
  std::vector<Point> estimates_;
  Point predator_;
  std::uint64_t step_ = 0;
  std::vector<Motion> all_;                  // as of the last look()
  std::vector<int> degrees_;                 // of all fish: neighbours
  std::vector<std::vector<int>> neighbors_;  // by own fish
};

}  // namespace dunlin::consensus
