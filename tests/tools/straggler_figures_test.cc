// The experiment of the paper on the straggler-aware ring, simulated with the protocol of the
// library, compared with the equations of the paper.
#include "tools/dunlin-sim/straggler/figures.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dunlin::simulate {
namespace {

using namespace std::chrono_literals;

// A timeout fires a nanosecond after its threshold.
constexpr Duration kTie = 2ns;

TEST(StragglerFigures, TheTransferIsLatencyAndBytes) {
  EXPECT_EQ(StragglerSetting().transfer(), 5us + 655ns);
}

TEST(StragglerFigures, ThePlainRingWaitsForTheSlowStep) {
  const StragglerSetting setting;
  for (const Duration extra : {0us, 1us, 7us, 30us}) {
    const auto took = simulate_straggler(setting, 0, extra);
    ASSERT_TRUE(took.is_ok()) << took.status().to_string();
    EXPECT_EQ(*took, 3 * (3us + 5us + 655ns) + extra);
    EXPECT_EQ(*took, predict_ring(setting, extra));
  }
}

// For all of figures 7 to 10, the time is, to the nanosecond, that of the slow chunk by the
// equations, or that of the other chunks.
TEST(StragglerFigures, TheStrategySavesWhatTheEquationsSay) {
  const StragglerSetting setting;
  for (const double alpha : kPaperAlphas) {
    for (Duration extra{}; extra <= 30us; extra += 1us) {
      const auto point = measure_straggler(setting, alpha, extra);
      ASSERT_TRUE(point.is_ok()) << point.status().to_string();
      const Duration expected =
          std::max(point->strategy_predicted, predict_ring(setting, Duration::zero()));
      EXPECT_LE(std::chrono::abs(point->strategy - expected), kTie)
          << "alpha " << alpha << ", delta T " << to_seconds(extra);
    }
  }
}

TEST(StragglerFigures, TheEquationsMeetWhereBothPartsComeTogether) {
  const StragglerSetting setting;
  const Duration meeting = 3us + setting.transfer();  // alpha 2
  EXPECT_EQ(predict_gain(setting, 2, meeting), 3us + setting.transfer());
  EXPECT_EQ(predict_gain(setting, 2, meeting - 1us), 2us + setting.transfer());
  EXPECT_EQ(predict_gain(setting, 2, meeting + 9us), 3us + setting.transfer());
  EXPECT_EQ(predict_gain(setting, 2, 3us), 0us);  // not late yet
}

// The gain reaches a quarter of the time of the ring when delta T is a whole step and its transfer;
// the paper reports 25.3 %. It is less when the other steps of the slow rank have to wait for the
// slow one. There is no gain when all its steps are slow, since no rank can be skipped before an
// owner.
TEST(StragglerFigures, TheBestGainIsAQuarter) {
  StragglerSetting setting;
  const Duration best = setting.step + setting.transfer();
  EXPECT_NEAR(measure_straggler(setting, 1.5, best)->gain(), 0.25, 1e-6);
  EXPECT_LT(measure_straggler(setting, 1.5, best - 500ns)->gain(), 0.25);
  EXPECT_LT(measure_straggler(setting, 1.5, best + 500ns)->gain(), 0.25);
  setting.slowness = Slowness::kOneStepInTurn;
  const double in_turn = measure_straggler(setting, 1.5, best)->gain();
  EXPECT_GT(in_turn, 0.1);
  EXPECT_LT(in_turn, 0.25);
  setting.slowness = Slowness::kEveryStep;
  EXPECT_NEAR(measure_straggler(setting, 1.5, best)->gain(), 0, 1e-6);
}

// Longer rings with each kind of slowness are never slower than the plain ring by more than the
// time to pass on late parts.
TEST(StragglerFigures, LongRingsComeToAnEnd) {
  StragglerSetting setting;
  for (const int ranks : {2, 3, 5, 9}) {
    setting.ranks = ranks;
    for (const Slowness slowness : kSlownesses) {
      setting.slowness = slowness;
      const auto point = measure_straggler(setting, 1.5, 12us);
      ASSERT_TRUE(point.is_ok()) << point.status().to_string();
      EXPECT_LE(point->strategy, point->ring + ranks * setting.step) << ranks;
      if (slowness == Slowness::kOneStep) {
        EXPECT_LE(point->strategy, point->ring) << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace dunlin::simulate
