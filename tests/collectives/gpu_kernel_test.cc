// The kernels for GPUs, run by the stand-in for the driver, which has the same source built for the
// host: their bits are those of the kernels for CPUs. With TEST_CUDA_DRIVER=libcuda.so.1, the same
// tests run on a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/kernels/average.h"
#include "collectives/kernels/gpu/gpu_kernels.h"
#include "collectives/kernels/reduce.h"
#include "collectives/training/sgd.h"
#include "runtime/gpu/cuda_driver.h"
#include "tests/collectives/reduce_operands.h"
#include "tests/support/gpu.h"

namespace dunlin::collective {
namespace {

using reference::fill_operands;
using reference::is_nan;
using reference::kOps;
using reference::kTypes;
using Bytes = std::vector<std::byte>;

constexpr auto kTimeout = std::chrono::seconds(60);

// Vectors in the memory of a GPU, in one allocation, and their bytes on the host.
class GpuKernelTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kPlaces = 140;
  static constexpr std::size_t kPlaceBytes = 40 << 10;
  static constexpr std::size_t kGuard = 64;

  void SetUp() override {
    if (!has_gpu_kernels()) GTEST_SKIP() << "needs nvcc, which this build lacks";
    auto driver = load_cuda_driver(dunlin::testing::gpu_library());
    if (!driver) GTEST_SKIP() << driver.status().message();
    driver_ = *driver;
    auto kernels = GpuKernels::load(driver_, 0);
    ASSERT_TRUE(kernels.is_ok()) << kernels.status().to_string();
    kernels_ = std::move(kernels).value();
    stream_ = driver_->create_stream(0).value();
    base_ = driver_->allocate(0, kPlaces * kPlaceBytes).value();
  }
  void TearDown() override {
    if (base_ != nullptr) driver_->free(0, base_);
  }

  // Vector number `index` begins `offset` bytes behind a multiple of 16.
  std::byte* place(std::size_t index, std::size_t offset) const {
    return base_ + index * kPlaceBytes + kGuard + offset;
  }
  void await() const {
    ASSERT_TRUE(dunlin::await(*stream_, clock_, clock_.now() + kTimeout, "a test").is_ok());
  }
  void write(std::byte* to, const Bytes& bytes) const {
    ASSERT_TRUE(stream_->copy_to_device(to, bytes.data(), bytes.size()).is_ok());
    await();
  }
  Bytes read(const std::byte* from, std::size_t size) const {
    Bytes bytes(size);
    EXPECT_TRUE(stream_->copy_to_host(bytes.data(), from, size).is_ok());
    await();
    return bytes;
  }

  SteadyClock clock_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<GpuKernels> kernels_;
  std::unique_ptr<GpuStream> stream_;
  std::byte* base_ = nullptr;
};

struct Shape {
  std::size_t inputs = 2;
  std::size_t targets = 1;
  std::size_t count = 0;
  std::size_t divisor = 1;
  bool is_in_place = false;  // the first target is the last input
  bool is_aligned = false;   // all vectors have the same place within 16 bytes
};

class GpuReduce : public GpuKernelTest,
                  public ::testing::WithParamInterface<std::tuple<DataType, ReduceOp>> {
 protected:
  // Compares one reduction with that of the CPU, and what lies beside the targets with what was
  // there before.
  void check(const Shape& shape, std::mt19937_64& random) {
    const auto [type, op] = GetParam();
    const std::size_t element = size_of(type);
    const std::size_t size = shape.count * element;
    ASSERT_LE(size + 3 * kGuard, kPlaceBytes);
    ASSERT_LE(shape.inputs + shape.targets, kPlaces);
    const auto any_offset = [&] { return random() % (16 / element) * element; };
    const std::size_t common = any_offset();
    const auto offset = [&] { return shape.is_aligned ? common : any_offset(); };

    const Bytes untouched(size + 2 * kGuard, std::byte{0x5a});
    std::vector<std::byte*> targets;
    for (std::size_t t = 0; t < shape.targets; ++t) {
      targets.push_back(place(t, offset()));
      ASSERT_NO_FATAL_FAILURE(write(targets[t] - kGuard, untouched));
    }
    std::vector<const std::byte*> inputs;
    std::vector<Bytes> host(shape.inputs, Bytes(size));
    std::vector<const std::byte*> host_inputs;
    for (std::size_t k = 0; k < shape.inputs; ++k) {
      const bool is_target = shape.is_in_place && k + 1 == shape.inputs;
      std::byte* const input = is_target ? targets[0] : place(shape.targets + k, offset());
      fill_operands(type, random, host[k].data(), shape.count);
      if (size > 0) write(input, host[k]);
      inputs.push_back(input);
      host_inputs.push_back(host[k].data());
    }
    Bytes expected(size);
    std::byte* const expected_target = expected.data();
    reduce({type, op}, host_inputs, std::span(&expected_target, 1), shape.count, shape.divisor);

    const Status status =
        kernels_->reduce(*stream_, {type, op}, inputs, targets, shape.count, shape.divisor);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    await();
    for (std::size_t t = 0; t < shape.targets; ++t) {
      Bytes wanted = untouched;
      std::copy(expected.begin(), expected.end(), wanted.begin() + kGuard);
      ASSERT_EQ(read(targets[t] - kGuard, wanted.size()), wanted)
          << shape.inputs << " inputs, " << shape.targets << " targets, " << shape.count
          << " elements, divisor " << shape.divisor << ", in place " << shape.is_in_place
          << ", aligned " << shape.is_aligned << ", target " << t;
    }
  }
};

TEST_P(GpuReduce, HasTheBitsOfTheCpu) {
  std::mt19937_64 random(1);
  const std::size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257, 1000, 4093};
  for (const std::size_t inputs : {1, 2, 3, 5, 9}) {
    for (const std::size_t targets : {1, 2, 5}) {
      for (const std::size_t count : counts) {
        const std::uint64_t draw = random();
        const Shape shape{inputs,        targets,       count,
                          1 + draw % 19, draw % 2 == 0, (draw >> 8) % 2 == 0};
        ASSERT_NO_FATAL_FAILURE(check(shape, random));
      }
    }
  }
}

TEST_P(GpuReduce, TakesAsManyInputsAndTargetsAsItSays) {
  std::mt19937_64 random(2);
  ASSERT_NO_FATAL_FAILURE(check({gpu::kMostInputs, 2, 301, 3, false, true}, random));
  ASSERT_NO_FATAL_FAILURE(check({2, gpu::kMostTargets, 301, 4, false, true}, random));
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<DataType, ReduceOp>>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_" + to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, GpuReduce,
                         ::testing::Combine(::testing::ValuesIn(kTypes), ::testing::ValuesIn(kOps)),
                         name_of);

// On the two processors of the stand-in, a thread takes a second step after 4 MiB.
TEST_F(GpuKernelTest, ThreadsOfLongVectorsTakeSeveralSteps) {
  constexpr std::size_t kCount = 1'500'001;
  constexpr std::size_t kSize = (kCount * sizeof(float) + 15) / 16 * 16;
  std::byte* const memory = driver_->allocate(0, 2 * kSize).value();
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000);
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  write(memory, {bytes, bytes + kCount * sizeof(float)});
  const std::vector<const std::byte*> inputs = {memory, memory};
  const std::vector<std::byte*> targets = {memory + kSize};
  ASSERT_TRUE(
      kernels_->reduce(*stream_, {DataType::kFloat32, ReduceOp::kSum}, inputs, targets, kCount)
          .is_ok());
  const Bytes sums = read(targets[0], kCount * sizeof(float));
  for (std::size_t i = 0; i < kCount; ++i) {
    float sum = 0;
    std::memcpy(&sum, sums.data() + i * sizeof sum, sizeof sum);
    ASSERT_EQ(sum, 2 * values[i]) << i;
  }
  driver_->free(0, memory);
}

TEST_F(GpuKernelTest, TooManyInputsAreAnErrorInWords) {
  const std::vector<const std::byte*> inputs(gpu::kMostInputs + 1, base_);
  std::byte* const target = base_;
  const Status status = kernels_->reduce(*stream_, {}, inputs, std::span(&target, 1), 4);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("at most 128 inputs and 128 targets, not 129 and 1"),
            std::string::npos)
      << status.to_string();
}

// Which NaN a weighted average stores is not defined.
class GpuAverage : public GpuKernelTest, public ::testing::WithParamInterface<DataType> {};

// Weights that are equal in double, in float32 only, or not at all.
enum class Weights { kEqual, kEqualIfRounded, kDifferent };

double weight_of(Weights weights, std::size_t parts, std::mt19937_64& random) {
  const double equal = 1.0 / static_cast<double>(parts);
  if (weights == Weights::kDifferent) return std::uniform_real_distribution<double>(-1, 1)(random);
  return weights == Weights::kEqual ? equal : static_cast<double>(static_cast<float>(equal));
}

TEST_P(GpuAverage, HasTheBitsOfTheCpu) {
  const DataType type = GetParam();
  const std::size_t element = size_of(type);
  std::mt19937_64 random(3);
  for (const std::size_t inputs : {0, 1, 2, 3, 8, 9, 33}) {
    for (const std::size_t count : {0, 1, 5, 16, 67, 1000, 3001}) {
      for (const Weights kind : {Weights::kEqual, Weights::kEqualIfRounded, Weights::kDifferent}) {
        const std::size_t size = count * element;
        std::vector<double> weights(inputs);
        for (double& weight : weights) weight = weight_of(kind, inputs + 1, random);
        const double self_weight = weight_of(kind, inputs + 1, random);
        std::vector<Bytes> host(inputs, Bytes(size));
        std::vector<const std::byte*> host_inputs;
        std::vector<const std::byte*> device_inputs;
        for (std::size_t k = 0; k < inputs; ++k) {
          fill_operands(type, random, host[k].data(), count);
          std::byte* const input = place(k + 1, random() % 2 * 16);
          if (size > 0) write(input, host[k]);
          host_inputs.push_back(host[k].data());
          device_inputs.push_back(input);
        }
        Bytes model(size);
        fill_operands(type, random, model.data(), count);
        std::byte* const device_model = place(0, 0);
        const bool is_in_place = random() % 2 == 0;
        std::byte* const own = is_in_place ? device_model : place(inputs + 1, random() % 2 * 16);
        if (size > 0) write(own, model);
        weighted_average(type, model.data(), count, self_weight, host_inputs, weights);
        ASSERT_TRUE(kernels_
                        ->weighted_average(*stream_, type, own, device_model, count, self_weight,
                                           device_inputs, weights)
                        .is_ok());
        await();
        const Bytes result = read(device_model, size);
        for (std::size_t i = 0; i < size; i += element) {
          if (is_nan(type, &result[i]) && is_nan(type, &model[i])) continue;
          ASSERT_TRUE(std::equal(&result[i], &result[i] + element, &model[i]))
              << to_string(type) << ", " << inputs << " inputs, element " << i / element << " of "
              << count << ", weights " << static_cast<int>(kind) << ", in place " << is_in_place;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuAverage,
                         ::testing::Values(DataType::kFloat16, DataType::kBfloat16,
                                           DataType::kFloat32, DataType::kFloat64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST_F(GpuKernelTest, IntegersHaveNoWeightedAverage) {
  EXPECT_EQ(
      kernels_->weighted_average(*stream_, DataType::kInt32, base_, base_, 4, 1, {}, {}).code(),
      Code::kInvalidArgument);
}

// The accuracy of conversions does not follow from that of a few numbers, so all are tried.
TEST_F(GpuKernelTest, EveryFloat16IsConvertedThereAndBack) {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    for (std::size_t first = 0; first < 65536; first += 16384) {
      Bytes all(16384 * 2);
      for (std::size_t i = 0; i < 16384; ++i) {
        const auto bits = static_cast<std::uint16_t>(first + i);
        std::memcpy(&all[2 * i], &bits, sizeof bits);
      }
      const std::byte* const host[] = {all.data(), all.data()};
      Bytes expected(all.size());
      std::byte* const expected_target = expected.data();
      reduce({type, ReduceOp::kMin}, host, std::span(&expected_target, 1), 16384);
      ASSERT_NO_FATAL_FAILURE(write(place(0, 0), all));
      const std::byte* const inputs[] = {place(0, 0), place(0, 0)};
      std::byte* const target = place(1, 0);
      ASSERT_TRUE(
          kernels_->reduce(*stream_, {type, ReduceOp::kMin}, inputs, std::span(&target, 1), 16384)
              .is_ok());
      await();
      EXPECT_EQ(read(target, all.size()), expected) << to_string(type) << " from " << first;
    }
  }
}

// With and without a velocity, at addresses that suit vectors and at others.
TEST_F(GpuKernelTest, AStepOfSgdHasTheBitsOfTheCpu) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<float> values(-2, 2);
  const auto drawn = [&](std::size_t count) {
    std::vector<float> vector(count);
    for (float& value : vector) value = values(random);
    return vector;
  };
  const auto bytes_of = [](std::span<const float> vector) {
    const auto bytes = std::as_bytes(vector);
    return Bytes(bytes.begin(), bytes.end());
  };
  for (const std::size_t count : {1, 3, 64, 1003}) {
    for (const float momentum : {0.0F, 0.9F}) {
      for (const std::size_t offset : {0, 4}) {
        training::Sgd sgd({.momentum = momentum, .weight_decay = 0.01F}, count);
        std::vector<float> parameters = drawn(count);
        ASSERT_NO_FATAL_FAILURE(write(place(0, 0), bytes_of(parameters)));
        ASSERT_NO_FATAL_FAILURE(write(place(2, 0), Bytes(count * sizeof(float))));
        for (int step = 0; step < 3; ++step) {
          const std::vector<float> gradient = drawn(count);
          sgd.step(parameters, gradient, 0.3F);
          ASSERT_NO_FATAL_FAILURE(write(place(1, offset), bytes_of(gradient)));
          auto* const velocity = momentum == 0 ? nullptr : reinterpret_cast<float*>(place(2, 0));
          ASSERT_TRUE(kernels_
                          ->sgd(*stream_, {0.3F, momentum, 0.01F},
                                reinterpret_cast<float*>(place(0, 0)),
                                reinterpret_cast<const float*>(place(1, offset)), velocity, count)
                          .is_ok());
          await();
        }
        EXPECT_EQ(read(place(0, 0), count * sizeof(float)), bytes_of(parameters)) << count;
        if (momentum != 0) {
          EXPECT_EQ(read(place(2, 0), count * sizeof(float)), bytes_of(sgd.velocity())) << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dunlin::collective
