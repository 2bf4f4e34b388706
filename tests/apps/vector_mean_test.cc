#include "apps/vector_mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dunlin {
namespace {

TEST(VectorMean, HasTheBitsOfEqualVectors) {
  const std::vector<float> vector = {0.1F, -0.0F, 1e-42F, 3e38F, 0.333333343F};
  VectorMean mean;
  for (int count = 1; count <= 7; ++count) {
    mean.add(vector);
    const std::vector<float> found = mean.mean();
    ASSERT_EQ(found, vector);
    EXPECT_TRUE(std::signbit(found[1]));
  }
  mean = VectorMean();
  mean.add(std::vector<float>{1, -2});
  mean.add(std::vector<float>{4, 2});
  EXPECT_EQ(mean.mean(), (std::vector<float>{2.5F, 0}));
}

}  // namespace
}  // namespace dunlin
