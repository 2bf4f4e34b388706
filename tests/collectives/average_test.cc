#include "collectives/kernels/average.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace dunlin::collective {
namespace {

template <typename T>
struct Problem {
  // `skew`: offset of model and inputs from the beginning of their aligned buffers, in elements.
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

// Compares each element with a sum in long double. Each of the k + 1 products and k sums rounds at
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
  // The memory next to the model is unchanged.
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
    // The same elements piece by piece, so that their vectors, tails and chunks differ.
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

// BlueFog's and MPI's users expect the average of 1, 2 and 6 to be 3, and that of 1, 1 and 2 to be
// the number that is nearest to 4 / 3. Numbers of parts beyond one sweep and beyond one block.
TYPED_TEST(WeightedAverage, OfSmallIntegersWithEqualWeightsIsRoundedOnce) {
  constexpr std::size_t kSize = 101;
  constexpr DataType kType =
      std::is_same_v<TypeParam, float> ? DataType::kFloat32 : DataType::kFloat64;
  for (const std::size_t parts : {1, 2, 3, 5, 7, 9, 10, 11, 17, 33, 41, 97}) {
    std::vector<std::vector<TypeParam>> values(parts, std::vector<TypeParam>(kSize));
    std::vector<TypeParam> expected(kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      std::size_t sum = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t value = (part * 7 + i * 3) % 23;
        values[part][i] = static_cast<TypeParam>(value);
        sum += value;
      }
      expected[i] = static_cast<TypeParam>(sum) / static_cast<TypeParam>(parts);
    }
    std::vector<const TypeParam*> inputs;
    std::vector<const std::byte*> bytes;
    for (std::size_t part = 1; part < parts; ++part) {
      inputs.push_back(values[part].data());
      bytes.push_back(reinterpret_cast<const std::byte*>(values[part].data()));
    }
    const double weight = 1.0 / static_cast<double>(parts);
    const std::vector<TypeParam> weights(parts - 1, static_cast<TypeParam>(weight));
    std::vector<TypeParam> model = values[0];
    weighted_average(std::span(model), static_cast<TypeParam>(weight), inputs,
                     std::span<const TypeParam>(weights));
    EXPECT_EQ(model, expected) << parts << " parts";
    model = values[0];
    weighted_average(kType, reinterpret_cast<std::byte*>(model.data()), kSize, weight, bytes,
                     std::vector<double>(parts - 1, weight));
    EXPECT_EQ(model, expected) << parts << " parts, of a type known at run time";
    // Weights that were rounded to the type of the elements are equal, too.
    const auto rounded = static_cast<double>(static_cast<TypeParam>(weight));
    model = values[0];
    weighted_average(kType, reinterpret_cast<std::byte*>(model.data()), kSize, rounded, bytes,
                     std::vector<double>(parts - 1, rounded));
    EXPECT_EQ(model, expected) << parts << " parts, of rounded weights";
  }
}

TEST(Uniformity, IsJudgedInTheTypeOfTheSums) {
  const double third = 1.0 / 3;
  const auto rounded = static_cast<double>(static_cast<float>(third));
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32}) {
    EXPECT_TRUE(is_uniform(type, third, std::vector<double>(2, third)));
    EXPECT_TRUE(is_uniform(type, rounded, std::vector<double>{rounded, third}));
    EXPECT_FALSE(is_uniform(type, 0.3333, std::vector<double>(2, third)));
    EXPECT_FALSE(is_uniform(type, third, std::vector<double>{third, 0.3333}));
    EXPECT_FALSE(is_uniform(type, third, std::vector<double>(3, third)));
    EXPECT_TRUE(is_uniform(type, 1.0, std::vector<double>()));
  }
  EXPECT_TRUE(is_uniform(DataType::kFloat64, third, std::vector<double>(2, third)));
  EXPECT_FALSE(is_uniform(DataType::kFloat64, rounded, std::vector<double>(2, rounded)));
  EXPECT_FALSE(is_uniform(DataType::kInt32, 1.0, std::vector<double>()));
}

// Blocks of many inputs are parts of one sum: none of them is an average by itself.
TEST(Uniformity, IsJudgedOverAllInputs) {
  constexpr std::size_t kInputs = 40;
  std::vector<float> values(16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(i + 3);
  const std::vector<const float*> inputs(kInputs, values.data());
  const std::vector<const std::byte*> bytes(kInputs,
                                            reinterpret_cast<const std::byte*>(values.data()));
  const double weight = 1.0 / 33;  // that of an average of the first 32 inputs and the model
  std::vector<float> expected = values;
  weighted_sum(std::span(expected), static_cast<float>(weight), inputs,
               std::vector<float>(kInputs, static_cast<float>(weight)));
  std::vector<float> model = values;
  weighted_average(DataType::kFloat32, reinterpret_cast<std::byte*>(model.data()), model.size(),
                   weight, bytes, std::vector<double>(kInputs, weight));
  EXPECT_EQ(model, expected);
}

TEST(NarrowAverage, OfSmallIntegersWithEqualWeightsIsRoundedOnce) {
  constexpr std::size_t kSize = 64;
  const auto widen = [](std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  };
  const auto bits_of = [](std::size_t value) {  // exact for small integers
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >>
                                      16);
  };
  std::vector<std::uint16_t> parts[3] = {std::vector<std::uint16_t>(kSize),
                                         std::vector<std::uint16_t>(kSize),
                                         std::vector<std::uint16_t>(kSize)};
  for (std::size_t i = 0; i < kSize; ++i) {
    for (std::size_t part = 0; part < 3; ++part) parts[part][i] = bits_of((i * (part + 3)) % 17);
  }
  std::vector<std::uint16_t> model = parts[0];
  const std::byte* const inputs[] = {reinterpret_cast<const std::byte*>(parts[1].data()),
                                     reinterpret_cast<const std::byte*>(parts[2].data())};
  const double weights[] = {1.0 / 3, 1.0 / 3};
  weighted_average(DataType::kBfloat16, reinterpret_cast<std::byte*>(model.data()), kSize, 1.0 / 3,
                   inputs, weights);
  for (std::size_t i = 0; i < kSize; ++i) {
    const float exact = (widen(parts[0][i]) + widen(parts[1][i]) + widen(parts[2][i])) / 3;
    const auto half = std::bit_cast<std::uint32_t>(exact);
    const auto nearest = static_cast<std::uint16_t>((half + 0x7fff + ((half >> 16) & 1)) >> 16);
    EXPECT_EQ(model[i], nearest) << i;
  }
}

}  // namespace
}  // namespace dunlin::collective
