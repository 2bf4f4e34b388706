#include "collectives/kernels/instruction_sets.h"  // must come before Highway's

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/kernels/reduce.h"
#include "tests/collectives/reduce_operands.h"
#include "tests/collectives/reduce_reference.h"

namespace dunlin::collective {
namespace {

using testing::Combine;

using reference::fill_operands;
using reference::kOps;
using reference::kTypes;

// Runs `body` once with the kernels of each instruction set that this CPU has.
template <typename Body>
void with_every_instruction_set(const Body& body) {
  const std::vector<std::int64_t> targets = usable_targets();
  for (const std::int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    use_target(target);
    body();
  }
  use_target(targets.front());  // the widest
}

TEST(InstructionSets, AreThoseThatHighwayFinds) {
  EXPECT_EQ(usable_targets(), hwy::SupportedAndGeneratedTargets());
}

// Memory for vectors that are at least kGuard bytes apart. Each begins after the beginning of a
// cache line.
class Arena {
 public:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kUntouched{0xa5};

  Arena(std::size_t places, std::size_t bytes)
      : stride_((bytes + 3 * kGuard) / kGuard * kGuard), memory_(places * stride_ + kGuard) {
    base_ = memory_.data() + (-reinterpret_cast<std::uintptr_t>(memory_.data())) % kGuard;
  }
  std::byte* place(std::size_t index, std::size_t offset) {
    return base_ + index * stride_ + kGuard + offset;
  }
  static void guard(std::byte* target, std::size_t size) {
    std::fill(target - kGuard, target + size + kGuard, kUntouched);
  }
  static bool is_intact(const std::byte* target, std::size_t size) {
    const auto untouched = [](std::byte each) { return each == kUntouched; };
    return std::all_of(target - kGuard, target, untouched) &&
           std::all_of(target + size, target + size + kGuard, untouched);
  }

 private:
  std::size_t stride_;
  std::vector<std::byte> memory_;
  std::byte* base_;
};

struct Shape {
  std::size_t inputs = 2;
  std::size_t targets = 1;
  std::size_t count = 0;
  std::size_t divisor = 1;
  bool in_place = false;  // the first target is the last input
  bool aligned = false;   // all targets equally, so that streaming stores apply
};

// Compares one call with the reference. Targets and inputs begin anywhere in a cache line.
void check(Reduction reduction, const Shape& shape, Stores stores, std::mt19937_64& random) {
  constexpr std::size_t kMaxPlaces = 17 + 9;
  static constexpr std::size_t kMaxCount = 6000;
  static Arena arena(kMaxPlaces, kMaxCount * 8 + Arena::kGuard);
  ASSERT_LE(shape.count, kMaxCount);
  ASSERT_LE(shape.inputs + shape.targets, kMaxPlaces);
  const std::size_t element = size_of(reduction.type);
  const std::size_t size = shape.count * element;
  const auto any_offset = [&] { return random() % (Arena::kGuard / element) * element; };

  const std::size_t common = any_offset();
  std::vector<std::byte*> targets;
  for (std::size_t t = 0; t < shape.targets; ++t) {
    targets.push_back(arena.place(t, shape.aligned ? common : any_offset()));
    Arena::guard(targets[t], size);
  }
  std::vector<const std::byte*> inputs;
  for (std::size_t k = 0; k < shape.inputs; ++k) {
    const bool same = shape.in_place && k + 1 == shape.inputs;
    std::byte* input = same ? targets[0] : arena.place(shape.targets + k, any_offset());
    fill_operands(reduction.type, random, input, shape.count);
    inputs.push_back(input);
  }
  const auto expected =
      reference::reduce(reduction.type, reduction.op, inputs, shape.count, shape.divisor);
  reduce(reduction, inputs, targets, shape.count, shape.divisor, stores);
  for (std::size_t t = 0; t < shape.targets; ++t) {
    const bool same = std::equal(expected.begin(), expected.end(), targets[t]);
    const auto wrong = std::mismatch(expected.begin(), expected.end(), targets[t]).first;
    ASSERT_TRUE(same) << shape.inputs << " inputs, " << shape.targets << " targets, " << shape.count
                      << " elements, divisor " << shape.divisor << ", in place " << shape.in_place
                      << ", streaming " << (stores == Stores::kStreaming) << ": target " << t
                      << " differs at element "
                      << (wrong - expected.begin()) / static_cast<std::ptrdiff_t>(element);
    ASSERT_TRUE(Arena::is_intact(targets[t], size)) << "beside target " << t;
  }
}

class ReduceKernel : public testing::TestWithParam<std::tuple<DataType, ReduceOp>> {
 protected:
  Reduction reduction() const { return {std::get<0>(GetParam()), std::get<1>(GetParam())}; }
  DataType type() const { return std::get<0>(GetParam()); }
  ReduceOp op() const { return std::get<1>(GetParam()); }
};

TEST_P(ReduceKernel, MatchesTheReferenceAtEverySmallSizeAndAnyAlignment) {
  with_every_instruction_set([&] {
    std::mt19937_64 random(1);
    for (const std::size_t inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
      for (const std::size_t targets : {1, 2, 4, 5, 9}) {
        for (std::size_t count = 0; count <= 70; ++count) {
          const std::uint64_t draw = random();
          const Shape shape{inputs,        targets,       count,
                            1 + draw % 19, draw % 2 == 0, (draw >> 8) % 2 == 0};
          const auto stores = (draw >> 16) % 2 == 0 ? Stores::kCached : Stores::kStreaming;
          ASSERT_NO_FATAL_FAILURE(check(reduction(), shape, stores, random));
        }
      }
    }
  });
}

TEST_P(ReduceKernel, MatchesTheReferenceAcrossBlocks) {
  with_every_instruction_set([&] {
    std::mt19937_64 random(2);
    for (const std::size_t inputs : {1, 2, 8, 9, 17}) {
      for (const std::size_t targets : {1, 2, 5}) {
        for (const std::size_t count : {511, 1024, 5003}) {
          for (const auto stores : {Stores::kCached, Stores::kStreaming}) {
            for (const bool aligned : {false, true}) {
              const Shape shape{inputs, targets, count, aligned ? 4u : 3u, !aligned, aligned};
              ASSERT_NO_FATAL_FAILURE(check(reduction(), shape, stores, random));
            }
          }
        }
      }
    }
  });
}

// Reduces pieces of growing length, so that vectors, tails and blocks differ from those of the
// whole.
TEST_P(ReduceKernel, IsBitwiseTheSameAtAnyPlace) {
  constexpr std::size_t kCount = 9001;
  const std::size_t element = size_of(type());
  with_every_instruction_set([&] {
    for (const std::size_t k : {2, 7, 17}) {
      std::mt19937_64 random(k);
      std::vector<std::vector<std::byte>> buffers(k, std::vector<std::byte>(kCount * element));
      std::vector<const std::byte*> inputs;
      for (auto& buffer : buffers) {
        fill_operands(type(), random, buffer.data(), kCount);
        inputs.push_back(buffer.data());
      }
      std::vector<std::byte> whole(kCount * element), pieces(whole.size());
      std::byte* target = whole.data();
      reduce(reduction(), inputs, std::span(&target, 1), kCount, 3, Stores::kStreaming);
      for (std::size_t begin = 0, piece = 1; begin < kCount; piece = piece * 2 + 1) {
        const std::size_t count = std::min(piece, kCount - begin);
        target = pieces.data() + begin * element;
        reduce(reduction(), inputs, std::span(&target, 1), count, 3);
        for (auto& input : inputs) input += count * element;
        begin += count;
      }
      EXPECT_EQ(whole, pieces) << k << " inputs";
    }
  });
}

// Memory without any bytes before and after the elements.
TEST_P(ReduceKernel, TouchesNothingBesideItsElements) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPlaces = 4;
  const std::size_t mapped = (2 * kPlaces + 1) * page;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* base = static_cast<std::byte*>(memory);
  for (std::size_t i = 0; i <= kPlaces; ++i) {
    ASSERT_EQ(mprotect(base + 2 * i * page, page, PROT_NONE), 0);
  }
  with_every_instruction_set([&] {
    for (std::size_t count = 0; count <= 150; ++count) {
      for (const bool at_end : {false, true}) {
        const auto place = [&](std::size_t index) {
          return base + (2 * index + 1) * page + (at_end ? page - count * size_of(type()) : 0);
        };
        const std::byte* const inputs[] = {place(0), place(1)};
        std::byte* const targets[] = {place(2), place(3)};
        reduce(reduction(), inputs, targets, count, 2, Stores::kCached);
        reduce(reduction(), inputs, targets, count, 2, Stores::kStreaming);
      }
    }
  });
  munmap(memory, mapped);
}

std::string name_of(const testing::TestParamInfo<std::tuple<DataType, ReduceOp>>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_" + to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, ReduceKernel,
                         Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kOps)), name_of);

// The result of one call with one target and one input of one element per operand.
template <typename T>
T reduce_one(DataType type, ReduceOp op, const std::vector<T>& operands, std::size_t divisor = 1) {
  std::vector<const std::byte*> inputs;
  for (const T& each : operands) inputs.push_back(reinterpret_cast<const std::byte*>(&each));
  T result;
  auto* target = reinterpret_cast<std::byte*>(&result);
  reduce({type, op}, inputs, std::span(&target, 1), 1, divisor);
  return result;
}

TEST(ReduceReference, Float16KnownValues) {
  const std::pair<float, std::uint16_t> known[] = {
      {0.0f, 0x0000},     {-0.0f, 0x8000},    {1.0f, 0x3c00},     {-2.0f, 0xc000},
      {65504.0f, 0x7bff}, {0x1p-14f, 0x0400}, {0x1p-24f, 0x0001}, {0x1.ff8p-15f, 0x03ff},
      {1.0f / 3, 0x3555}, {INFINITY, 0x7c00}, {-INFINITY, 0xfc00}};
  for (const auto& [value, bits] : known) {
    EXPECT_EQ(reference::to_float16(value), bits) << value;
    if (value != 1.0f / 3) {
      EXPECT_EQ(reference::from_float16(bits), value);
    }
  }
  EXPECT_EQ(reference::to_float16(65519.996f), 0x7bff);
  EXPECT_EQ(reference::to_float16(65520.0f), 0x7c00);
  EXPECT_EQ(reference::to_float16(0x1p-25f), 0x0000);         // a tie rounds to even
  EXPECT_EQ(reference::to_float16(0x1.000002p-25f), 0x0001);  // just above
  EXPECT_EQ(reference::to_float16(1 + 0x1p-11f), 0x3c00);
  EXPECT_EQ(reference::to_float16(1 + 0x3p-11f), 0x3c02);
  EXPECT_EQ(reference::to_float16(0x1.ffep-15f), 0x0400);  // the last denormal rounds up to normal
}

TEST(ReduceReference, Bfloat16KnownValues) {
  EXPECT_EQ(reference::to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(reference::to_bfloat16(-2.0f), 0xc000);
  EXPECT_EQ(reference::to_bfloat16(3.140625f), 0x4049);
  EXPECT_EQ(reference::to_bfloat16(1 + 0x1p-8f), 0x3f80);
  EXPECT_EQ(reference::to_bfloat16(1 + 0x3p-8f), 0x3f82);
  EXPECT_EQ(reference::to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(reference::from_bfloat16(0x4049), 3.140625f);
}

// Compares the conversions of the reference with those of the kernels. The kernels' min of a number
// with itself converts it twice, to float32 and back.
TEST(ReduceFloat16, EveryPatternGoesThereAndBack) {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    const bool half = type == DataType::kFloat16;
    std::vector<std::uint16_t> patterns(65536), results(65536), expected(65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      patterns[i] = static_cast<std::uint16_t>(i);
      const bool nan = (i & 0x7fff) > (half ? 0x7c00u : 0x7f80u);
      expected[i] = static_cast<std::uint16_t>(nan ? (half ? 0x7e00 : 0x7fc0) : i);
      const float value =
          half ? reference::from_float16(patterns[i]) : reference::from_bfloat16(patterns[i]);
      EXPECT_EQ(std::isnan(value), nan);
      EXPECT_EQ(half ? reference::to_float16(value) : reference::to_bfloat16(value), expected[i]);
    }
    const auto* input = reinterpret_cast<const std::byte*>(patterns.data());
    const std::byte* const inputs[] = {input, input};
    auto* target = reinterpret_cast<std::byte*>(results.data());
    with_every_instruction_set([&] {
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        reduce({type, op}, inputs, std::span(&target, 1), patterns.size());
        EXPECT_EQ(results, expected) << to_string(type);
      }
    });
  }
}

// Combines every bit pattern with numbers that make the result fall between two patterns: among the
// denormals, next to infinity, and halfway.
TEST(ReduceFloat16, EveryPatternRoundsToNearestEven) {
  std::vector<std::uint16_t> patterns(65536), others(65536), results(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  const std::byte* const inputs[] = {reinterpret_cast<const std::byte*>(patterns.data()),
                                     reinterpret_cast<const std::byte*>(others.data())};
  auto* target = reinterpret_cast<std::byte*>(results.data());
  with_every_instruction_set([&] {
    for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
      for (const float other : {0x1p-11f, 0x1.008p-12f, 1.5f, 0x1.8p-14f, 1.0078125f, 3.0f}) {
        const auto bits = type == DataType::kFloat16 ? reference::to_float16(other)
                                                     : reference::to_bfloat16(other);
        std::fill(others.begin(), others.end(), bits);
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
          reduce({type, op}, inputs, std::span(&target, 1), patterns.size());
          const auto expected = reference::reduce(type, op, inputs, patterns.size());
          EXPECT_EQ(std::memcmp(expected.data(), results.data(), expected.size()), 0)
              << to_string(type) << ' ' << to_string(op) << ' ' << other;
        }
      }
    }
  });
}

// If the kernels rounded after every input, 256 + 1 would stay 256 in bfloat16 and 2048 + 1 would
// stay 2048 in float16.
TEST(ReduceFloat16, RoundsOnceHoweverManyInputs) {
  for (const std::size_t ones : {2, 8, 9, 16, 40}) {
    std::vector<std::uint16_t> brains(ones + 1, 0x3f80);
    brains[0] = 0x4380;
    EXPECT_EQ(reduce_one(DataType::kBfloat16, ReduceOp::kSum, brains),
              reference::to_bfloat16(256.0f + static_cast<float>(ones)));
    std::vector<std::uint16_t> halves(ones + 1, 0x3c00);
    halves[0] = 0x6800;
    EXPECT_EQ(reduce_one(DataType::kFloat16, ReduceOp::kSum, halves),
              reference::to_float16(2048.0f + static_cast<float>(ones)));
    // The sum exceeds float16, but the average does not.
    const std::vector<std::uint16_t> large(ones, 0x7bff);
    EXPECT_EQ(reduce_one(DataType::kFloat16, ReduceOp::kAverage, large, ones), 0x7bff);
  }
}

TEST(ReduceIntegers, WrapAndTruncateTowardZero) {
  using Bytes = std::vector<std::int8_t>;
  EXPECT_EQ(reduce_one(DataType::kInt8, ReduceOp::kSum, Bytes{127, 1}), -128);
  EXPECT_EQ(reduce_one(DataType::kInt8, ReduceOp::kProduct, Bytes{-128, -1}), -128);
  EXPECT_EQ(reduce_one(DataType::kInt8, ReduceOp::kAverage, Bytes{-4, -3}, 2), -3);
  EXPECT_EQ(reduce_one(DataType::kInt8, ReduceOp::kAverage, Bytes{-64, -64}, 128), -1);
  EXPECT_EQ(reduce_one(DataType::kInt8, ReduceOp::kAverage, Bytes{-64, -64}, 1000), 0);
  EXPECT_EQ(reduce_one(DataType::kInt8, ReduceOp::kAverage, Bytes{-7}, 2), -3);
  EXPECT_EQ(reduce_one(DataType::kUint8, ReduceOp::kAverage, std::vector<std::uint8_t>{200, 50}, 3),
            83);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  using Longs = std::vector<std::int64_t>;
  EXPECT_EQ(reduce_one(DataType::kInt64, ReduceOp::kSum, Longs{kMax, 1}), kMin);
  EXPECT_EQ(reduce_one(DataType::kInt64, ReduceOp::kProduct, Longs{kMin, -1}), kMin);
  EXPECT_EQ(reduce_one(DataType::kInt64, ReduceOp::kProduct, Longs{3'000'000'019, 3'000'000'019}),
            static_cast<std::int64_t>(3'000'000'019ull * 3'000'000'019ull));
  EXPECT_EQ(reduce_one(DataType::kInt64, ReduceOp::kAverage, Longs{kMin}, std::size_t{1} << 63),
            -1);
}

// Compares bits, because NaN differs from itself and -0 equals 0.
TEST(ReduceFloats, NanAndZerosDoNotDependOnTheOrder) {
  const auto nan = reference::bits_of<float>(0xffc12345u);  // negative, with a payload
  const auto normal_nan =
      reference::bits_of<std::uint32_t>(std::numeric_limits<float>::quiet_NaN());
  const auto bits = [](ReduceOp op, const std::vector<float>& operands) {
    return reference::bits_of<std::uint32_t>(reduce_one(DataType::kFloat32, op, operands));
  };
  for (const ReduceOp op : kOps) {
    EXPECT_EQ(bits(op, {nan, 1}), normal_nan) << to_string(op);
    EXPECT_EQ(bits(op, {1, nan}), normal_nan) << to_string(op);
    EXPECT_EQ(bits(op, {nan, 1, 2}), normal_nan) << to_string(op);
    EXPECT_EQ(bits(op, {1, nan, -INFINITY}), normal_nan) << to_string(op);
  }
  EXPECT_EQ(bits(ReduceOp::kSum, {INFINITY, -INFINITY}), normal_nan);
  EXPECT_EQ(bits(ReduceOp::kMin, {0.0f, -0.0f}), 0x80000000u);
  EXPECT_EQ(bits(ReduceOp::kMin, {-0.0f, 0.0f}), 0x80000000u);
  EXPECT_EQ(bits(ReduceOp::kMax, {0.0f, -0.0f}), 0u);
  EXPECT_EQ(bits(ReduceOp::kMax, {-0.0f, 0.0f}), 0u);
  EXPECT_EQ(bits(ReduceOp::kSum, {nan}), 0xffc12345u);  // a single input is copied
}

TEST(ReduceFloats, OnlyAnAverageIsDivided) {
  const std::vector<float> operands = {6, 3};
  EXPECT_EQ(reduce_one(DataType::kFloat32, ReduceOp::kAverage, operands, 3), 3.0f);
  EXPECT_EQ(reduce_one(DataType::kFloat32, ReduceOp::kAverage, operands), 9.0f);
  EXPECT_EQ(reduce_one(DataType::kFloat32, ReduceOp::kSum, operands, 3), 9.0f);
  EXPECT_EQ(reduce_one(DataType::kFloat32, ReduceOp::kProduct, operands, 3), 18.0f);
}

TEST(Copy, MovesAnyBytesToEveryTarget) {
  Arena arena(10, 20'000);
  std::mt19937_64 random(3);
  std::byte* const input = arena.place(9, 5);
  std::generate_n(input, 20'000, [&] { return static_cast<std::byte>(random()); });
  for (const std::size_t size : {0, 1, 63, 64, 200, 4096, 19'999}) {
    for (const std::size_t count : {1, 2, 4, 5, 9}) {
      for (const bool aligned : {false, true}) {
        for (const auto stores : {Stores::kCached, Stores::kStreaming}) {
          std::vector<std::byte*> targets;
          for (std::size_t t = 0; t < count; ++t) {
            targets.push_back(arena.place(t, aligned ? 7 : 3 * t));
            Arena::guard(targets[t], size);
          }
          copy(input, targets, size, stores);
          for (const std::byte* target : targets) {
            ASSERT_TRUE(std::equal(input, input + size, target)) << size << " to " << count;
            ASSERT_TRUE(Arena::is_intact(target, size)) << size << " to " << count;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace dunlin::collective
