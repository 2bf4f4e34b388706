#include "collectives/straggler/lateness.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dunlin::collective {
namespace {

using namespace std::chrono_literals;

LatenessOptions fixed(double alpha) {
  LatenessOptions options;
  options.mode = LatenessMode::kFixed;
  options.alpha = alpha;
  options.step = 3us;
  options.transfer = 5us;
  return options;
}

TEST(Lateness, FixedIsThePapersThreshold) {
  const Lateness lateness(fixed(1.5));
  EXPECT_FALSE(lateness.is_late(4500ns));  // alpha * T
  EXPECT_TRUE(lateness.is_late(4501ns));
  EXPECT_EQ(lateness.timeout(), Duration(9500ns));  // alpha * T + T_trans
}

TEST(Lateness, FixedLearnsNothing) {
  Lateness lateness(fixed(2));
  for (int i = 0; i < 1000; ++i) lateness.record_step(1s), lateness.record_gap(1s);
  EXPECT_TRUE(lateness.is_late(7us));
  EXPECT_EQ(lateness.timeout(), Duration(11us));
}

TEST(Lateness, NeverIsNever) {
  LatenessOptions options;
  options.mode = LatenessMode::kNever;
  Lateness lateness(options);
  for (int i = 0; i < 100; ++i) lateness.record_step(1us), lateness.record_gap(1us);
  EXPECT_FALSE(lateness.is_late(1h));
  EXPECT_FALSE(lateness.timeout());
}

TEST(Lateness, AdaptsOnceEnoughWasSeen) {
  LatenessOptions options;
  options.floor = 1us;
  Lateness lateness(options);
  for (int i = 0; i < 15; ++i) lateness.record_step(30us), lateness.record_gap(100us);
  EXPECT_FALSE(lateness.is_late(1h));
  EXPECT_FALSE(lateness.timeout());
  lateness.record_step(30us);
  EXPECT_FALSE(lateness.is_late(60us));
  EXPECT_TRUE(lateness.is_late(61us));
  EXPECT_FALSE(lateness.timeout());
  lateness.record_gap(100us);
  EXPECT_EQ(lateness.timeout(), Duration(130us));  // the gap and (alpha - 1) * T
}

TEST(Lateness, StragglersDoNotMoveTheThreshold) {
  LatenessOptions options;
  options.floor = 1us;
  Lateness lateness(options);
  for (int i = 0; i < 160; ++i) {
    lateness.record_step(i % 4 == 0 ? 5ms : 30us);
    lateness.record_gap(i % 4 == 0 ? 5ms : 100us);
  }
  EXPECT_TRUE(lateness.is_late(61us));
  EXPECT_EQ(lateness.timeout(), Duration(130us));
}

TEST(Lateness, NothingBelowTheFloorIsLate) {
  LatenessOptions options;
  options.floor = 50us;
  Lateness lateness(options);
  for (int i = 0; i < 32; ++i) lateness.record_step(1us), lateness.record_gap(2us);
  EXPECT_FALSE(lateness.is_late(50us));
  EXPECT_TRUE(lateness.is_late(51us));
  EXPECT_EQ(lateness.timeout(), Duration(50us));
}

TEST(Lateness, RefusesWhatCannotWork) {
  EXPECT_TRUE(Lateness::check(fixed(1.1)).is_ok());
  EXPECT_EQ(Lateness::check(fixed(1)).code(), Code::kInvalidArgument);
  EXPECT_EQ(Lateness::check(fixed(std::nan(""))).code(), Code::kInvalidArgument);
  LatenessOptions options = fixed(2);
  options.step = {};
  EXPECT_EQ(Lateness::check(options).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace dunlin::collective
