#include "apps/cnn/redistribution.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace dunlin::cnn {
namespace {

Checkpoint saved(std::vector<float> parameters, std::vector<float> velocity, double loss) {
  Checkpoint checkpoint;
  checkpoint.ranks = 4;
  checkpoint.run = 5;
  checkpoint.iteration = 100;
  checkpoint.settings = "small";
  checkpoint.loss = loss;
  checkpoint.accuracy = loss / 10;
  checkpoint.batches = 100;
  checkpoint.parameters = std::move(parameters);
  checkpoint.velocity = std::move(velocity);
  return checkpoint;
}

TEST(CnnRedistribution, CountsTheIterationsOfTheSameEpochs) {
  // 1,200 images in batches of 16: 18 batches of each of 4 workers, 37 of each of 2.
  EXPECT_EQ(iteration_after(1, 37, 1), 37U);
  EXPECT_EQ(iteration_after(9.0 / 18, 37, 1), 19U);   // 18.5
  EXPECT_EQ(iteration_after(10.0 / 18, 37, 1), 21U);  // 20.6
  EXPECT_EQ(iteration_after(0, 37, 1), 0U);
  // Where workers end together after some iterations only, they also begin there.
  EXPECT_EQ(iteration_after(10.0 / 18, 37, 4), 20U);
  EXPECT_EQ(iteration_after(10.0 / 18, 37, 16), 16U);
  EXPECT_EQ(iteration_after(1.0 / 37, 37, 4), 0U);
}

TEST(CnnRedistribution, AWorkerBeginsWithTheMeanOfItsStates) {
  Redistribution redistribution;
  Checkpoint one = saved({1, 2}, {4, 0}, 0.5);
  one.statistics = {7};
  redistribution.add(one);
  Checkpoint other = saved({3, 4}, {0, -1}, 1.5);
  other.statistics = {9};
  redistribution.add(other);
  Checkpoint expected;
  expected.rank = 1;
  expected.ranks = 2;
  expected.run = 6;
  expected.iteration = 200;
  expected.settings = "small";
  expected.loss = 1;
  expected.accuracy = 0.1;
  expected.batches = 200;
  expected.parameters = {2, 3};
  expected.velocity = {2, -0.5F};
  expected.statistics = {8};
  EXPECT_EQ(redistribution.state(1, 2, 6, 200), expected);
}

// With all-reduce, all workers have the same model and velocity.
TEST(CnnRedistribution, EqualModelsKeepTheirBits) {
  const std::vector<float> model = {0.1F, -0.0F, 1e-42F, 0.7F};
  Redistribution redistribution;
  for (int count = 0; count < 3; ++count) {
    redistribution.add(saved(model, model, 1));
    EXPECT_EQ(redistribution.state(0, 2, 6, 1).parameters, model);
    EXPECT_EQ(redistribution.state(0, 2, 6, 1).velocity, model);
    EXPECT_TRUE(redistribution.state(0, 2, 6, 1).statistics.empty());
  }
}

}  // namespace
}  // namespace dunlin::cnn
