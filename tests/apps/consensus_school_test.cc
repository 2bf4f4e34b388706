// Tests the school of fish. Its ranks take turns in one thread.
#include "apps/consensus/school.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace dunlin::testing {
namespace {

using namespace dunlin::consensus;

class Sea {
 public:
  explicit Sea(const SchoolOptions& options, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      schools_.push_back(School::create(options, rank, ranks).value());
    }
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto all = motions();
      for (School& school : schools_) {
        school.look(all);
        school.learn();
      }
      // Only the estimates of neighbors are passed on; the others are replaced by a far point.
      std::vector<std::vector<Point>> told;
      for (std::size_t rank = 0; rank < schools_.size(); ++rank) {
        const auto near = schools_[rank].neighbor_ranks();
        std::vector<Point> estimates;
        for (std::size_t other = 0; other < schools_.size(); ++other) {
          const bool is_told =
              other == rank || std::count(near.begin(), near.end(), static_cast<int>(other)) > 0;
          for (const Point& one : schools_[other].estimates()) {
            estimates.push_back(is_told ? one : Point{NAN, NAN});
          }
        }
        told.push_back(estimates);
      }
      for (std::size_t rank = 0; rank < schools_.size(); ++rank) {
        schools_[rank].average(told[rank]);
        schools_[rank].swim();
      }
    }
  }

  std::vector<Motion> motions() const {
    std::vector<Motion> all;
    for (const School& school : schools_) {
      all.insert(all.end(), school.motions().begin(), school.motions().end());
    }
    return all;
  }
  Point predator() const { return schools_.front().predator(); }
  // The distances of all fish from the predator, ascending.
  std::vector<double> distances() const {
    std::vector<double> found;
    for (const Motion& fish : motions()) found.push_back((fish.position - predator()).length());
    std::sort(found.begin(), found.end());
    return found;
  }
  double worst_estimate() const {
    double worst = 0;
    for (const School& school : schools_) {
      for (const Point& one : school.estimates()) {
        const double error = (one - predator()).length();
        if (!(error <= worst)) worst = error;  // NaN as well
      }
    }
    return worst;
  }
  // The largest angle without a fish, seen from the predator.
  double gap() const {
    std::vector<double> angles;
    for (const Motion& fish : motions()) {
      const Point offset = fish.position - predator();
      angles.push_back(std::atan2(offset.y, offset.x));
    }
    std::sort(angles.begin(), angles.end());
    double largest = angles.front() + 2 * M_PI - angles.back();
    for (std::size_t i = 1; i < angles.size(); ++i) {
      largest = std::max(largest, angles[i] - angles[i - 1]);
    }
    return largest;
  }
  const School& school(std::size_t rank) const { return schools_[rank]; }

 private:
  std::vector<School> schools_;
};

TEST(School, EstimatesApproachThePredator) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Sea sea({.seed = seed}, 4);
    const double at_first = sea.worst_estimate();
    sea.run(60);
    EXPECT_LT(sea.worst_estimate(), 0.15) << "seed " << seed;
    EXPECT_GT(at_first, 1) << "seed " << seed;
  }
}

TEST(School, FishThatDisperseGetAway) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Sea sea({.behavior = Behavior::kDisperse, .seed = seed}, 4);
    double nearest = sea.distances().front();
    for (int second = 0; second < 3; ++second) {
      sea.run(40);
      EXPECT_GT(sea.distances().front(), nearest) << "seed " << seed;
      nearest = sea.distances().front();
    }
    sea.run(200);
    EXPECT_GT(sea.distances().front(), 5.5) << "seed " << seed;
    EXPECT_LT(sea.distances().back(), 9) << "seed " << seed;  // and stop when they are safe
  }
}

TEST(School, FishThatEncircleEndOnARingAroundThePredator) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Sea sea({.behavior = Behavior::kEncircle, .fish_per_rank = 3, .seed = seed}, 5);
    sea.run(600);
    EXPECT_NEAR(sea.distances().front(), 2, 0.2) << "seed " << seed;
    EXPECT_NEAR(sea.distances().back(), 2, 0.2) << "seed " << seed;
    // 15 fish; the largest gap in a ring is at most a twelfth of a circle.
    EXPECT_LT(sea.gap(), 2 * M_PI / 15 * 2) << "seed " << seed;
  }
}

TEST(School, TheRingFollowsAPredatorThatMoves) {
  Sea sea({.predator_speed = 0.2}, 4);
  const Point before = sea.predator();
  sea.run(400);
  EXPECT_GT((sea.predator() - before).length(), 0.5);
  EXPECT_NEAR(sea.distances().front(), 2, 0.4);
  EXPECT_NEAR(sea.distances().back(), 2, 0.4);
}

TEST(School, NeighborsAreMutualAndChange) {
  Sea sea({.behavior = Behavior::kDisperse, .fish_per_rank = 1, .sight = 2}, 8);
  sea.run(1);
  std::vector<std::vector<int>> at_first;
  for (std::size_t rank = 0; rank < 8; ++rank) {
    at_first.push_back(sea.school(rank).neighbor_ranks());
    for (const int other : at_first.back()) {
      const auto theirs = sea.school(static_cast<std::size_t>(other)).neighbor_ranks();
      EXPECT_TRUE(std::binary_search(theirs.begin(), theirs.end(), static_cast<int>(rank)));
    }
  }
  sea.run(200);
  bool is_changed = false;
  for (std::size_t rank = 0; rank < 8; ++rank) {
    is_changed = is_changed || sea.school(rank).neighbor_ranks() != at_first[rank];
  }
  EXPECT_TRUE(is_changed);
}

TEST(School, WrongOptionsAreRefused) {
  for (const SchoolOptions& wrong :
       {SchoolOptions{.fish_per_rank = 0}, SchoolOptions{.sight = 0}, SchoolOptions{.speed = -1},
        SchoolOptions{.noise = -0.1}, SchoolOptions{.learning_rate = 2},
        SchoolOptions{.time_step = NAN}}) {
    EXPECT_EQ(School::create(wrong, 0, 1).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace dunlin::testing
