#include "collectives/kernels/scaled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "collectives/kernels/average.h"

namespace dunlin::collective {
namespace {

template <typename T>
class ScaledTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ScaledTest, Types);

template <typename T>
std::vector<T> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<T> uniform(-1, 1);
  std::vector<T> values(count);
  for (T& value : values) value = uniform(random);
  return values;
}

template <typename T>
auto bits(T value) {
  return std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(value);
}

constexpr std::size_t kSkews = 4;

// The lengths end within and between the vectors of every instruction set.
template <typename T, typename Check>
void for_all_places(Check&& check) {
  for (std::size_t size = 0; size < 300; size += size < 70 ? 1 : 23) {
    for (std::size_t skew = 0; skew < kSkews; ++skew) {
      for (const Stores stores : {Stores::kCached, Stores::kStreaming}) check(size, skew, stores);
    }
  }
}

TYPED_TEST(ScaledTest, CopiesAreProducts) {
  using T = TypeParam;
  for_all_places<T>([](std::size_t size, std::size_t skew, Stores stores) {
    const auto input = random_values<T>(size + kSkews, size);
    std::vector<T> target(size + kSkews + 1, T{7});
    copy_scaled(std::span(target.data() + skew, size), T{-0.3}, input.data() + 1, stores);
    for (std::size_t i = 0; i < target.size(); ++i) {
      const bool is_inside = i >= skew && i < skew + size;
      const T expected = is_inside ? T{-0.3} * input[i - skew + 1] : T{7};
      ASSERT_EQ(bits(target[i]), bits(expected)) << size << " elements, skew " << skew;
    }
  });
}

TYPED_TEST(ScaledTest, SumsHaveTheBitsOfAWeightedAverage) {
  using T = TypeParam;
  for_all_places<T>([](std::size_t size, std::size_t skew, Stores stores) {
    const auto input = random_values<T>(size + kSkews, size);
    const auto base = random_values<T>(size + kSkews, size + 1000);
    std::vector<T> target(size + kSkews + 1, T{7});
    add_scaled(std::span(target.data() + skew, size), base.data() + 2, T{0.7}, input.data() + 1,
               stores);
    std::vector<T> expected(target.size(), T{7});
    std::copy_n(base.data() + 2, size, expected.data() + skew);
    const T* const inputs[] = {input.data() + 1};
    const T weights[] = {T{0.7}};
    weighted_average(std::span(expected.data() + skew, size), T{1}, inputs, weights);
    for (std::size_t i = 0; i < target.size(); ++i)
      ASSERT_EQ(bits(target[i]), bits(expected[i])) << size << " elements, skew " << skew;
    // In place.
    std::vector<T> sum = base;
    add_scaled(std::span(sum.data() + 2, size), sum.data() + 2, T{0.7}, input.data() + 1);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(bits(sum[i + 2]), bits(expected[i + skew]));
  });
}

}  // namespace
}  // namespace dunlin::collective
