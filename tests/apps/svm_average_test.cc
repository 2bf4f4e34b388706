#include "apps/svm/average.h"

#include <gtest/gtest.h>

#include <vector>

#include "apps/svm/evaluate.h"
#include "apps/svm/generator.h"
#include "apps/svm/learner.h"

namespace dunlin::svm {
namespace {

TEST(ModelAverage, TheFirstModelIsTheFirstAverage) {
  ModelAverage average;
  EXPECT_EQ(average.count(), 0U);
  EXPECT_TRUE(average.average().empty());
  average.add(std::vector<float>{3, -1});
  EXPECT_EQ(average.count(), 1U);
  EXPECT_EQ(average.average()[0], 3);
  EXPECT_EQ(average.average()[1], -1);
}

TEST(ModelAverage, StaysWhereTheModelsStay) {
  ModelAverage average;
  for (int i = 0; i < 1000; ++i) average.add(std::vector<float>{0.1F});
  EXPECT_FLOAT_EQ(average.average()[0], 0.1F);
}

// With a weight of n^7, models from the first tenth count for 10^-8 of the whole.
TEST(ModelAverage, ForgetsTheFirstModels) {
  ModelAverage average;
  for (int i = 0; i < 100; ++i) average.add(std::vector<float>{1000});
  for (int i = 100; i < 1000; ++i) average.add(std::vector<float>{i % 2 == 0 ? 1.0F : 3.0F});
  EXPECT_NEAR(average.average()[0], 2, 0.02);
}

TEST(ModelAverage, GoesOnBitForBit) {
  ModelAverage whole;
  ModelAverage first;
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> model{static_cast<float>(i * i), 1.0F / static_cast<float>(i + 1)};
    whole.add(model);
    first.add(model);
    if (i == 11) {
      ModelAverage second;
      second.restore(first.count(), first.average());
      first = second;
    }
  }
  EXPECT_EQ(first.count(), whole.count());
  EXPECT_TRUE(std::equal(first.average().begin(), first.average().end(), whole.average().begin()));
}

TEST(ModelAverage, EndsBelowTheLastModel) {
  const Dataset data =
      generate({.rows = 2000, .features = 100, .nonzeros_per_row = 10, .flipped = 0.1}).value();
  LearnerOptions options{.lambda = 1e-4};
  options.eta0 = find_eta0(data, options).value();
  std::vector<float> model(data.features + 1);
  Learner learner = Learner::create(model, data, options).value();
  ModelAverage average;
  for (int i = 0; i < 400; ++i) {
    learner.train(100);
    learner.materialize();
    average.add(model);
  }
  const auto objective = [&](std::span<const float> at) {
    return evaluate(at, data, options.loss, options.lambda).objective();
  };
  EXPECT_LT(objective(average.average()), objective(model));
}

}  // namespace
}  // namespace dunlin::svm
