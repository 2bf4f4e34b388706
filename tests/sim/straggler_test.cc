// The straggler-aware ring, stepped in virtual time on the hostile network, over many seeds: late
// ranks, timeouts at any moment, full slots, a death. A failure prints its seed; run it alone with
// --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "collectives/straggler/straggler_ring.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::LatenessMode;
using collective::RingStep;
using collective::StragglerOptions;
using collective::StragglerRing;
using World = HostileWorld;

template <typename T>
using Rings = std::vector<std::unique_ptr<StragglerRing<T>>>;

// Options that depend on the seed only, so that all ranks have the same.
StragglerOptions options_for(World& world, std::uint64_t seed) {
  StragglerOptions options;
  for (int rank = 0; rank < world.size(); ++rank) options.membership.members.emplace_back(rank);
  // The counts range from less than an element per rank to several segments per chunk.
  options.count = seed % 7 == 0 ? seed % 5 : 20 + seed % 90;
  options.segment_bytes = std::size_t{8} << seed % 4;
  options.depth = 1 + static_cast<std::uint32_t>(seed % 3);
  options.is_average = seed % 2 == 0;
  options.lateness.mode = seed % 4 == 0 ? LatenessMode::kAdaptive : LatenessMode::kFixed;
  options.lateness.alpha = 1.5;
  options.lateness.step = std::chrono::microseconds(3);
  // The network's delays reach 50 us, so timeouts come too early, often or seldom.
  options.lateness.transfer = std::chrono::microseconds(seed % 60);
  options.lateness.floor = std::chrono::microseconds(5);
  // A fifth of all steps are slow.
  options.step_time = [&random = world.random()](const RingStep&) -> Duration {
    return std::chrono::microseconds(random() % 5 == 0 ? random() % 100 : 2 + random() % 2);
  };
  return options;
}

template <typename T>
Rings<T> make_rings(World& world, const StragglerOptions& options) {
  Rings<T> rings;
  for (int rank = 0; rank < world.size(); ++rank)
    rings.push_back(StragglerRing<T>::prepare(world.fabric(rank), options).value());
  for (auto& ring : rings) EXPECT_TRUE(ring->connect().is_ok());
  return rings;
}

// Elements differ, so that a segment that has landed elsewhere or late is found.
double part(std::size_t rank, std::uint64_t step, std::size_t element) {
  return std::sin(static_cast<double>(rank * 131 + step * 17 + element * 3));
}

class StragglerTest : public ::testing::TestWithParam<std::uint64_t> {};

struct Tally {
  std::uint64_t timeouts = 0;
  std::uint64_t skips = 0;
  std::uint64_t forwards = 0;
};

template <typename T>
void expect_right_sums(std::uint64_t seed, Tally* tally) {
  World world(seed, 1 + static_cast<int>(seed % 16));
  const StragglerOptions options = options_for(world, seed);
  Rings<T> rings = make_rings<T>(world, options);
  const std::size_t ranks = rings.size();
  constexpr std::uint64_t kSteps = 8;
  // By step and rank.
  std::vector<std::vector<std::vector<T>>> results(kSteps, std::vector<std::vector<T>>(ranks));
  std::vector<std::uint64_t> steps(ranks);
  std::vector<bool> is_running(ranks);
  const bool is_finished = world.run([&](int rank) {
    const auto self = static_cast<std::size_t>(rank);
    auto& ring = *rings[self];
    if (steps[self] == kSteps) return true;
    if (!is_running[self]) {
      if (world.random()() % 8 != 0) return false;  // some start late
      for (std::size_t i = 0; i < options.count; ++i)
        ring.data()[i] = static_cast<T>(part(self, steps[self], i));
      EXPECT_TRUE(ring.start().is_ok());
      is_running[self] = true;
    }
    const Status status = ring.test();
    if (status.is_busy()) return false;
    EXPECT_TRUE(status.is_ok()) << "seed " << seed << ": " << status.to_string();
    results[steps[self]][self].assign(ring.data().begin(), ring.data().end());
    tally->timeouts += ring.report().timeouts;
    tally->skips += ring.report().skips;
    tally->forwards += ring.report().forwards;
    is_running[self] = false;
    ++steps[self];
    return steps[self] == kSteps;
  });
  ASSERT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
  const double bound = 4.0 * static_cast<double>(ranks) *
                       static_cast<double>(std::numeric_limits<T>::epsilon()) *
                       static_cast<double>(ranks);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < options.count; ++i) {
      double expected = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank)
        expected += static_cast<double>(static_cast<T>(part(rank, step, i)));
      if (options.is_average) expected /= static_cast<double>(ranks);
      ASSERT_NEAR(static_cast<double>(results[step][0][i]), expected, bound)
          << "seed " << seed << " step " << step << " element " << i;
    }
    for (const auto& result : results[step]) {
      ASSERT_EQ(result.size(), options.count);
      ASSERT_TRUE(options.count == 0 || std::memcmp(result.data(), results[step][0].data(),
                                                    result.size() * sizeof(T)) == 0)
          << "seed " << seed << " step " << step << ": ranks differ";
    }
  }
}

TEST_P(StragglerTest, SumsAreRightAndEqualOnAllRanks) {
  const std::uint64_t seed = GetParam();
  Tally tally;
  if (seed % 3 == 0) {
    expect_right_sums<float>(seed, &tally);
  } else {
    expect_right_sums<double>(seed, &tally);
  }
  RecordProperty("timeouts", static_cast<int>(tally.timeouts));
  RecordProperty("skips", static_cast<int>(tally.skips));
  RecordProperty("forwards", static_cast<int>(tally.forwards));
}

// A rank dies at a random moment. Every other rank comes to an end: with all steps done, or with an
// error or a wait that knows of the death.
TEST_P(StragglerTest, ADeathHangsNoRank) {
  const std::uint64_t seed = GetParam();
  World world(seed, 2 + static_cast<int>(seed % 7));
  StragglerOptions options = options_for(world, seed);
  options.count = std::max<std::size_t>(options.count, 40);
  Rings<double> rings = make_rings<double>(world, options);
  expect_death_is_seen(world, rings, 20, seed);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StragglerTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(200)),
                         [](const auto& seed) { return std::to_string(seed.param); });

// The seeds reach all routes that a part can take.
TEST(Straggler, TheSeedsReachEveryRoute) {
  Tally tally;
  for (const std::uint64_t seed : {5, 7, 11, 13}) expect_right_sums<double>(seed, &tally);
  EXPECT_GT(tally.timeouts, 0u);
  EXPECT_GT(tally.skips, 0u);
  EXPECT_GT(tally.forwards, 0u);
}

}  // namespace
}  // namespace dunlin::testing
