// Sums of random numbers over every transport: the result of every algorithm, with any count,
// differs from a sum in float64 (for float64: in long double) by no more than its roundings allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "collectives/communicator/communicator.h"
#include "tests/collectives/reduce_reference.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Algorithm;
using collective::Call;
using collective::Collective;
using collective::Communicator;
using collective::DataType;
using collective::Problem;
using collective::ReduceOp;
using transport::Fabric;

// How a type is stored and read, and its roundoff: half a unit in the last place of 1.
struct Float16 {
  using Stored = std::uint16_t;
  static constexpr DataType kType = DataType::kFloat16;
  static constexpr long double kRoundoff = 0x1p-11L;
  static Stored store(double value) {
    return collective::reference::to_float16(static_cast<float>(value));
  }
  static long double load(Stored stored) { return collective::reference::from_float16(stored); }
};
struct Bfloat16 {
  using Stored = std::uint16_t;
  static constexpr DataType kType = DataType::kBfloat16;
  static constexpr long double kRoundoff = 0x1p-8L;
  static Stored store(double value) {
    return collective::reference::to_bfloat16(static_cast<float>(value));
  }
  static long double load(Stored stored) { return collective::reference::from_bfloat16(stored); }
};
struct Float32 {
  using Stored = float;
  static constexpr DataType kType = DataType::kFloat32;
  static constexpr long double kRoundoff = 0x1p-24L;
  static Stored store(double value) { return static_cast<float>(value); }
  static long double load(Stored stored) { return stored; }
};
struct Float64 {
  using Stored = double;
  static constexpr DataType kType = DataType::kFloat64;
  static constexpr long double kRoundoff = 0x1p-53L;
  static Stored store(double value) { return value; }
  static long double load(Stored stored) { return stored; }
};

// Values of all magnitudes from 1/64 to 64, so that sums cancel and small values get lost beside
// large ones. No sum of eight values overflows float16.
template <typename Format>
std::vector<typename Format::Stored> values_of(int rank, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed * 1000003ULL + static_cast<unsigned>(rank));
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-6, 6);
  std::vector<typename Format::Stored> values(count);
  for (auto& value : values) value = Format::store(std::ldexp(mantissa(random), exponent(random)));
  return values;
}

// A sum of P terms in any order makes P - 1 additions, an average one more rounding; each is off by
// at most `roundoff` of a partial sum, which the sum of magnitudes bounds (Higham, Accuracy and
// Stability of Numerical Algorithms, section 4.2).
template <typename Format>
void expect_accurate(Communicator& communicator, const Algorithm& algorithm, const Problem& problem,
                     ReduceOp op, unsigned seed) {
  using Stored = typename Format::Stored;
  std::vector<std::vector<Stored>> inputs;
  for (int rank = 0; rank < problem.size; ++rank)
    inputs.push_back(values_of<Format>(rank, problem.input_count(), seed));
  const int rank = communicator.rank();
  std::vector<Stored> output(problem.output_count());
  Call call;
  call.collective = problem.collective;
  call.input = inputs[static_cast<std::size_t>(rank)].data();
  call.output = output.data();
  call.count = problem.count;
  call.reduction = {Format::kType, op};
  call.algorithm = algorithm.name;
  const Status status = communicator.run(call);
  ASSERT_TRUE(status.is_ok()) << algorithm.name << ": " << status.to_string();
  if (problem.collective == Collective::kReduce && rank != problem.root) return;
  const std::size_t offset = problem.collective == Collective::kReduceScatter
                                 ? static_cast<std::size_t>(rank) * problem.count
                                 : 0;
  for (std::size_t e = 0; e < output.size(); ++e) {
    long double sum = 0;
    long double magnitude = 0;
    for (const auto& input : inputs) {
      const long double value = Format::load(input[offset + e]);
      sum += value;
      magnitude += std::abs(value);
    }
    if (op == ReduceOp::kAverage) {
      sum /= problem.size;
      magnitude /= problem.size;
    }
    const long double roundings = problem.size;
    const long double bound =
        roundings * Format::kRoundoff / (1 - roundings * Format::kRoundoff) * magnitude;
    ASSERT_LE(std::abs(Format::load(output[e]) - sum), bound)
        << to_string(problem.collective) << " " << algorithm.name << ", " << problem.count
        << " elements of " << to_string(Format::kType) << ", element " << e << " of rank " << rank;
  }
}

class CollectiveAccuracy : public ::testing::TestWithParam<std::tuple<PeerKind, int>> {};

TEST_P(CollectiveAccuracy, WithinTheBoundOfItsRoundings) {
  const auto [kind, size] = GetParam();
  run_ranks({.kind = kind, .size = size, .killed = {}, .configure = {}}, [&](Fabric& fabric) {
    auto made = Communicator::create(fabric, {});
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    Communicator& communicator = **made;
    std::mt19937 random(static_cast<unsigned>(size));  // the same on all ranks
    std::uniform_int_distribution<std::size_t> any_count(2, 20'000);
    unsigned seed = 0;
    for (const Algorithm& algorithm : collective::algorithms()) {
      if (algorithm.collective != Collective::kAllReduce &&
          algorithm.collective != Collective::kReduce &&
          algorithm.collective != Collective::kReduceScatter)
        continue;
      if (algorithm.needs_mapped_peers && !communicator.is_all_mapped()) continue;
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, any_count(random)}) {
        Problem problem;
        problem.collective = algorithm.collective;
        problem.size = size;
        problem.count = count;
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
          ++seed;
          expect_accurate<Float32>(communicator, algorithm, problem, op, seed);
          expect_accurate<Float64>(communicator, algorithm, problem, op, seed);
          expect_accurate<Float16>(communicator, algorithm, problem, op, seed);
          expect_accurate<Bfloat16>(communicator, algorithm, problem, op, seed);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
    sync(fabric, "the communicator can go");
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, CollectiveAccuracy,
                         ::testing::Combine(::testing::Values(PeerKind::kThreads),
                                            ::testing::Values(1, 3, 4, 7)));
INSTANTIATE_TEST_SUITE_P(Processes, CollectiveAccuracy,
                         ::testing::Combine(::testing::Values(PeerKind::kProcesses),
                                            ::testing::Values(5)));

}  // namespace
}  // namespace dunlin::testing
