// School: a school of fish that locates a predator together, though no fish can do so alone
// (BlueFog, section IV-B; Tu, Sayed: Cooperative prey herding based on diffusion adaptation, ICASSP
// 2011).
//
// In every step each fish measures its distance from the predator and the direction to it, both
// with noise. It improves its estimate w of the predator's position by one step of stochastic
// gradient descent on (d - u (x - w))^2 / 2, which depends on the direction u only. It then
// averages w with the fish within sight, with Metropolis-Hastings weights, and swims. The neighbors
// change in every step.
//
// Fish swim by the usual terms of flocking (Reynolds 1987), each a desired velocity:
//  keep apart    from fish within `comfort`, the more the nearer
//  align         with the mean velocity of the neighbors, while fleeing
//  disperse      away from the estimate while it is nearer than `safe`; beyond it fish slow down
//  encircle      to the distance `ring` from the estimate, around it at half speed, and, along the
//                ring, away from neighbors, such that the ring closes
// A fish turns by a share of the difference in each step, and swims no faster than `speed`.
//
// A School holds the fish of one rank. The caller tells it the positions of the fish of all ranks.
// Owner thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/random.h"
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

// Lengths are in meters, times in seconds.
struct SchoolOptions {
  Behavior behavior = Behavior::kEncircle;
  int fish_per_rank = 4;
  double sight = 3;  // fish within this distance are neighbors
  double comfort = 0.3;
  double ring = 2;             // to encircle at
  double safe = 6;             // far enough to stop fleeing
  double speed = 1;            // of a fish
  double predator_speed = 0;   // along a circle of radius 1
  double noise = 0.05;         // deviation: of angles in radians, of distances relative
  double learning_rate = 0.5;  // of the estimate
  double time_step = 0.05;
  std::uint64_t seed = 1;
};

// The part of a fish's state that all fish can see.
struct Motion {
  Point position;
  Point velocity;
};

class School {
 public:
  // kInvalidArgument for values that are not above 0. Only noise and the predator's speed may be 0.
  static Result<School> create(const SchoolOptions& options, int rank, int ranks);

  // The fish of this rank. Fish i of rank r is fish r * fish_per_rank + i of the school.
  std::span<const Motion> motions() const { return motions_; }
  std::span<const Point> estimates() const { return estimates_; }
  Point predator() const { return predator_; }
  std::uint64_t step() const { return step_; }

  // The parts of a step, in this order.
  // 1. Finds the neighbors; `all` are the fish of all ranks.
  void look(std::span<const Motion> all);
  // The other ranks that have fish near those of this rank, ascending. The relation is symmetric.
  std::vector<int> neighbor_ranks() const;
  // 2. Measures, and improves estimates(), which have to be sent to the neighbors then.
  void learn();
  // 3. Averages. `all` holds the estimates of all fish; those of neighbors suffice.
  void average(std::span<const Point> all);
  // 4. Moves the fish and the predator.
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
  std::vector<int> degrees_;                 // of all fish: their numbers of neighbors
  std::vector<std::vector<int>> neighbors_;  // of each own fish
};

}  // namespace dunlin::consensus
