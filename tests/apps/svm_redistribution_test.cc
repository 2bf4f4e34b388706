#include "apps/svm/redistribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace dunlin::svm {
namespace {

Checkpoint saved(std::vector<float> model, std::uint64_t exchanges) {
  Checkpoint checkpoint;
  checkpoint.ranks = 4;
  checkpoint.run = 5;
  checkpoint.iteration = exchanges;
  checkpoint.shard_rows = 1500;
  checkpoint.options = {.lambda = 1e-3, .eta0 = 0.5, .seed = 7, .t_step = 2};
  checkpoint.model = std::move(model);
  return checkpoint;
}

Checkpoint fresh() {
  Checkpoint checkpoint;
  checkpoint.rank = 1;
  checkpoint.ranks = 2;
  checkpoint.run = 6;
  checkpoint.shard_rows = 3000;
  checkpoint.data.fill(std::byte{9});
  checkpoint.options = {.lambda = 1e-3, .eta0 = 1, .seed = 7, .shard = 1, .t_step = 2};
  checkpoint.model.resize(3);
  return checkpoint;
}

// What a run with `ranks` ranks has behind it after so many exchanges.
double examples_after(std::uint64_t exchanges, std::uint32_t ranks, std::uint64_t sync_every) {
  return static_cast<double>(exchanges * ranks * sync_every);
}

TEST(SvmRedistribution, CountsTheExchangesOfTheSamePassesOverTheData) {
  // 6,000 rows: with 4 ranks, 15 exchanges of 100 examples are a pass.
  const double pass = examples_after(15, 4, 100);
  EXPECT_EQ(exchanges_for(pass, 6000, 4, 100), 15U);
  EXPECT_EQ(exchanges_for(pass, 6000, 2, 100), 30U);
  EXPECT_EQ(exchanges_for(pass, 6000, 1, 100), 60U);
  EXPECT_EQ(exchanges_for(pass, 6000, 5, 100), 12U);
  EXPECT_EQ(exchanges_for(2 * pass, 6000, 5, 50), 48U);
  EXPECT_EQ(exchanges_for(0, 6000, 5, 100), 0U);
  // To the nearest exchange: 7 of 4 ranks are 5.6 of 5, and 3.5 of 8.
  EXPECT_EQ(exchanges_for(examples_after(7, 4, 100), 6000, 5, 100), 6U);
  EXPECT_EQ(exchanges_for(examples_after(7, 4, 100), 6000, 8, 100), 4U);
}

// The rows of a pass are counted as for planned exchanges: a job of 7 ranks that has ended its
// passes has nothing left to do with another number of ranks.
TEST(SvmRedistribution, ARunThatHasEndedHasEnded) {
  const std::uint64_t rows = 6001;
  const auto planned = [&](std::uint32_t ranks) {
    const double rows_of_rank = std::ceil(static_cast<double>(rows) / ranks);
    return static_cast<std::uint64_t>(std::ceil(3 * rows_of_rank / 100));
  };
  for (std::uint32_t before = 1; before <= 9; ++before) {
    for (std::uint32_t now = 1; now <= 9; ++now) {
      const auto exchanges =
          exchanges_for(examples_after(planned(before), before, 100), rows, now, 100);
      // Both numbers are rounded.
      EXPECT_GE(exchanges + 1, planned(now)) << before << " " << now;
      EXPECT_LE(static_cast<double>(exchanges),
                static_cast<double>(planned(now)) + 1 + 1.0 * before / now)
          << before << " " << now;
    }
  }
}

TEST(SvmRedistribution, ARankBeginsWithTheMeanModelAtItsPlaceInTheData) {
  Redistribution redistribution;
  redistribution.add(saved({1, -2, 0.5F}, 15));
  redistribution.add(saved({2, 4, 1.5F}, 15));
  const Checkpoint state = redistribution.state(fresh(), 31, 100);
  EXPECT_EQ(state.model, (std::vector<float>{1.5F, 1, 1}));
  EXPECT_EQ(state.iteration, 31U);
  EXPECT_EQ(state.state, (LearnerState{.t = 6200, .epoch = 1, .position = 100, .scale = 1}));
  EXPECT_EQ(state.averaged, 0U);
  EXPECT_TRUE(state.average.empty());
  // eta0 is that of the saved run; everything else describes this one.
  Checkpoint expected = fresh();
  expected.options.eta0 = 0.5;
  EXPECT_EQ(state.options, expected.options);
  EXPECT_EQ(state.run, 6U);
  EXPECT_EQ(state.rank, 1U);
  EXPECT_EQ(state.ranks, 2U);
  EXPECT_EQ(state.shard_rows, 3000U);
  EXPECT_EQ(state.data, fresh().data);
  EXPECT_EQ(examples_of(state), 3100U);
}

// The last element is the bias.
TEST(SvmRedistribution, WeightsThatAreNotMaterializedAreScaled) {
  Checkpoint scaled = saved({4, 8, 2}, 15);
  scaled.state.scale = 0.25;
  Redistribution redistribution;
  redistribution.add(scaled);
  EXPECT_EQ(redistribution.state(fresh(), 1, 100).model, (std::vector<float>{1, 2, 2}));
}

TEST(SvmRedistribution, AveragesAreAveraged) {
  Redistribution redistribution;
  for (const float value : {1.0F, 3.0F}) {
    Checkpoint one = saved({0, 0, 0}, 15);
    one.averaged = 15;
    one.average = {value, 0, -value};
    redistribution.add(one);
  }
  const Checkpoint state = redistribution.state(fresh(), 30, 100);
  EXPECT_EQ(state.averaged, 30U);
  EXPECT_EQ(state.average, (std::vector<float>{2, 0, -2}));
  // An average of no models would be none.
  EXPECT_EQ(redistribution.state(fresh(), 0, 100).averaged, 1U);
}

}  // namespace
}  // namespace dunlin::svm
