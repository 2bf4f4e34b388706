#include "collectives/kernels/average.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace dunlin::collective {
namespace {

template <typename T>
struct Problem {
  // `skew`: elements by which model and inputs stand off the alignment of their buffers.
  Problem(std::size_t k, std::size_t elements, std::size_t offset, std::uint64_t seed)
      : size(elements), skew(offset) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<T> uniform(-1, 1);
    const auto fill = [&](std::vector<T>& values, std::size_t count) {
      values.resize(count);
      for (T& value : values) value = uniform(random);
    };
    fill(model, size + 2 * skew + 1);
    buffers.resize(k);
    for (auto& buffer : buffers) fill(buffer, size + skew);
    for (auto& buffer : buffers) inputs.push_back(buffer.data() + skew);
    fill(weights, k);
    self_weight = uniform(random);
  }

  std::span<T> own() { return {model.data() + skew, size}; }
  void run() { weighted_average(own(), self_weight, inputs, weights); }

  std::size_t size;
  std::size_t skew;
  T self_weight;
  std::vector<T> model;
  std::vector<std::vector<T>> buffers;
  std::vector<const T*> inputs;
  std::vector<T> weights;
};

// Element by element against a sum in long double. Each of the k + 1 products and k sums rounds at
// most once, by half a unit of a partial sum that the sum of magnitudes bounds: (k + 1) * eps *
// sum.
template <typename T>
void expect_close(std::size_t k, std::size_t size, std::size_t skew) {
  Problem<T> problem(k, size, skew, k * 1000 + size + skew);
  const std::vector<T> before = problem.model;
  problem.run();
  for (std::size_t i = 0; i < size; ++i) {
    long double sum = static_cast<long double>(problem.self_weight) * before[skew + i];
    long double magnitude = std::abs(sum);
    for (std::size_t j = 0; j < k; ++j) {
      const long double term = static_cast<long double>(problem.weights[j]) * problem.inputs[j][i];
      sum += term;
      magnitude += std::abs(term);
    }
    const auto bound =
        static_cast<long double>(k + 1) * std::numeric_limits<T>::epsilon() * magnitude;
    ASSERT_NEAR(problem.own()[i], sum, bound)
        << "k " << k << ", size " << size << ", element " << i;
  }
  // Nothing beside the model was written.
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i >= skew && i < skew + size) continue;
    ASSERT_EQ(problem.model[i], before[i]) << "k " << k << ", size " << size;
  }
}

template <typename T>
class WeightedAverage : public testing::Test {};
using Elements = testing::Types<float, double>;
TYPED_TEST_SUITE(WeightedAverage, Elements);

TYPED_TEST(WeightedAverage, MatchesTheReferenceAtEverySmallSizeAndAlignment) {
  for (std::size_t k = 0; k <= 20; ++k) {
    for (std::size_t size = 0; size <= 70; ++size) {
      for (const std::size_t skew : {0, 1, 3}) expect_close<TypeParam>(k, size, skew);
    }
  }
}

TYPED_TEST(WeightedAverage, MatchesTheReferenceAcrossChunks) {
  for (const std::size_t k : {1, 7, 8, 9, 16, 17, 64}) {
    for (const std::size_t size : {4095, 4097, 50'021}) expect_close<TypeParam>(k, size, 1);
  }
}

TYPED_TEST(WeightedAverage, IsBitwiseTheSameAtAnyLengthAlignmentAndTime) {
  constexpr std::size_t kSize = 9001;
  for (const std::size_t k : {1, 7, 8, 20}) {
    Problem<TypeParam> whole(k, kSize, 0, k);
    Problem<TypeParam> again = whole;
    for (std::size_t j = 0; j < k; ++j) again.inputs[j] = again.buffers[j].data();
    whole.run();
    // The same elements, piece by piece, so that each meets other vectors, tails and chunks.
    for (std::size_t begin = 0, piece = 1; begin < kSize; begin += piece, piece = piece * 2 + 1) {
      std::vector<const TypeParam*> inputs;
      for (const auto* input : again.inputs) inputs.push_back(input + begin);
      weighted_average(again.own().subspan(begin, std::min(piece, kSize - begin)),
                       again.self_weight, inputs, std::span<const TypeParam>(again.weights));
    }
    EXPECT_EQ(whole.model, again.model) << "k " << k;
  }
}

TYPED_TEST(WeightedAverage, AZeroWeightDoesNotHideABrokenInput) {
  std::vector<TypeParam> model(40, TypeParam(1));
  std::vector<TypeParam> input(40, TypeParam(2));
  input[33] = std::numeric_limits<TypeParam>::quiet_NaN();
  const TypeParam* const inputs[] = {input.data()};
  const TypeParam weights[] = {0};
  weighted_average(std::span(model), TypeParam(1), inputs, weights);
  EXPECT_EQ(model[32], TypeParam(1));
  EXPECT_TRUE(std::isnan(model[33]));
}

}  // namespace
}  // namespace dunlin::collective
