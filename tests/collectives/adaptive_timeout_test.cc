#include "collectives/waiting/adaptive_timeout.h"

#include <gtest/gtest.h>

#include <random>

namespace dunlin::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(AdaptiveTimeout, IsTheCeilingUntilEnoughWasSeen) {
  AdaptiveTimeout timeout(milliseconds(1), seconds(30));
  for (int i = 0; i < 15; ++i) timeout.record(milliseconds(1));
  EXPECT_EQ(timeout.current(), seconds(30));
  timeout.record(milliseconds(1));
  EXPECT_EQ(timeout.current(), milliseconds(20));
}

TEST(AdaptiveTimeout, FollowsAStragglerButNotAnOutlier) {
  AdaptiveTimeout timeout(milliseconds(1), seconds(30));
  for (int i = 0; i < 160; ++i)
    timeout.record(i == 100 ? Duration(seconds(20)) : Duration(milliseconds(2)));
  EXPECT_EQ(timeout.current(), milliseconds(40));
  for (int i = 0; i < 160; ++i) timeout.record(milliseconds(50));
  EXPECT_EQ(timeout.current(), seconds(1));
}

TEST(AdaptiveTimeout, WidensWithTheSpread) {
  AdaptiveTimeout timeout(milliseconds(1), seconds(100));
  std::mt19937 random(1);
  for (int i = 0; i < 160; ++i) timeout.record(milliseconds(10 + random() % 20));
  // median about 20 ms, MAD about 5 ms: 20 * (20 + 50) ms
  EXPECT_GT(timeout.current(), milliseconds(1000));
  EXPECT_LT(timeout.current(), milliseconds(2000));
}

TEST(AdaptiveTimeout, StaysWithinItsBounds) {
  AdaptiveTimeout timeout(seconds(5), seconds(30));
  for (int i = 0; i < 32; ++i) timeout.record(Duration(1));
  EXPECT_EQ(timeout.current(), seconds(5));
  for (int i = 0; i < 160; ++i) timeout.record(seconds(10));
  EXPECT_EQ(timeout.current(), seconds(30));
}

}  // namespace
}  // namespace dunlin::collective
