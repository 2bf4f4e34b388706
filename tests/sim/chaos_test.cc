// NOTIFY-ACK, barrier and reduce, stepped in virtual time on the hostile network, over many seeds.
// The protocol code is that of real fabrics; only transport and clock differ. A failure prints its
// seed; run it alone with
// --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "collectives/barrier/barrier.h"
#include "collectives/graph/generators.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::Barrier;
using collective::Graph;
using collective::MixingMatrix;
using collective::ReduceOptions;
using collective::StochasticReduce;
using collective::SyncMode;
using collective::Weighting;
using World = HostileWorld;

using Reduces = std::vector<std::unique_ptr<StochasticReduce<double>>>;

Reduces make_reduces(World& world, const Graph& graph, SyncMode mode, std::size_t count,
                     std::uint32_t depth) {
  Reduces reduces;
  for (int rank = 0; rank < world.size(); ++rank) {
    ReduceOptions options;
    options.membership = everybody(world.size());
    options.neighborhood = collective::neighborhood_of(graph, Weighting::kUniform,
                                                       options.membership.members, Rank(rank))
                               .value();
    options.count = count;
    options.mode = mode;
    options.depth = depth;
    reduces.push_back(StochasticReduce<double>::prepare(world.fabric(rank), options).value());
  }
  for (auto& reduce : reduces) EXPECT_TRUE(reduce->connect().is_ok());
  return reduces;
}

class ChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

const char* const kSpecs[] = {"complete", "ring", "root-expander", "star", "exponential", "chain"};

// Every reduce uses every input, whole and of the right step: the result is that of the mixing
// matrix.
TEST_P(ChaosTest, NotifyAckReducesExactly) {
  const std::uint64_t seed = GetParam();
  World world(seed, 2 + static_cast<int>(seed % 6));
  const Graph graph =
      collective::make_graph(kSpecs[seed % std::size(kSpecs)], world.size()).value();
  constexpr std::size_t kCount = 67;
  constexpr std::uint64_t kSteps = 12;
  Reduces reduces = make_reduces(world, graph, SyncMode::kNotifyAck, kCount,
                                 1 + static_cast<std::uint32_t>(seed % 3));
  const MixingMatrix mixing = MixingMatrix::make(graph, Weighting::kUniform).value();
  const auto nodes = static_cast<std::size_t>(world.size());

  // Elements differ, so that a piece that has landed elsewhere or late is found.
  std::vector<std::vector<double>> expected(nodes, std::vector<double>(kCount));
  const auto drift = [](std::size_t node, std::uint64_t step, std::size_t i) {
    return std::cos(static_cast<double>(node * 31 + step * 7 + i));
  };
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    std::vector<double> x(nodes);
    std::vector<double> y(nodes);
    for (std::size_t i = 0; i < kCount; ++i) {
      for (std::size_t node = 0; node < nodes; ++node)
        x[node] = expected[node][i] + drift(node, step, i);
      mixing.multiply(x, y);
      for (std::size_t node = 0; node < nodes; ++node) expected[node][i] = y[node];
    }
  }

  std::vector<std::uint64_t> steps(nodes);
  std::vector<bool> is_running(nodes);
  const bool is_finished = world.run([&](int rank) {
    const auto node = static_cast<std::size_t>(rank);
    auto& reduce = *reduces[node];
    if (steps[node] == kSteps) return true;
    if (!is_running[node]) {
      for (std::size_t i = 0; i < kCount; ++i) reduce.model()[i] += drift(node, steps[node] + 1, i);
      EXPECT_TRUE(reduce.start().is_ok());
      is_running[node] = true;
    }
    const Status status = reduce.test();
    if (status.is_busy()) return false;
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(static_cast<int>(reduce.report().inputs), graph.in_degree(rank));
    is_running[node] = false;
    ++steps[node];
    return steps[node] == kSteps;
  });
  ASSERT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
  for (std::size_t node = 0; node < nodes; ++node) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(reduces[node]->model()[i], expected[node][i], 1e-12)
          << "seed " << seed << " node " << node;
    }
  }
}

TEST_P(ChaosTest, NoRankLeavesABarrierBeforeAllHaveEntered) {
  const std::uint64_t seed = GetParam();
  World world(seed, 1 + static_cast<int>(seed % 9));
  std::vector<std::unique_ptr<Barrier>> barriers;
  for (int rank = 0; rank < world.size(); ++rank) {
    barriers.push_back(
        Barrier::prepare(world.fabric(rank), "chaos", everybody(world.size()).members).value());
  }
  for (auto& barrier : barriers) ASSERT_TRUE(barrier->connect().is_ok());
  constexpr int kRounds = 10;
  std::vector<int> entered(barriers.size());
  std::vector<int> left(barriers.size());
  const bool is_finished = world.run([&](int rank) {
    const auto self = static_cast<std::size_t>(rank);
    if (left[self] == kRounds) return true;
    if (entered[self] == left[self]) {
      ++entered[self];
      EXPECT_TRUE(barriers[self]->start().is_ok());
    }
    const Status status = barriers[self]->test();
    if (status.is_busy()) return false;
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    for (const int others : entered) EXPECT_GE(others, entered[self]) << "seed " << seed;
    ++left[self];
    return left[self] == kRounds;
  });
  EXPECT_TRUE(is_finished) << "seed " << seed;
}

// A rank dies at a random moment. Every other rank comes to an end: with all steps done, or with an
// error or a wait that names a rank that is gone or that waits, too. No rank waits for a live, idle
// peer.
TEST_P(ChaosTest, ADeathIsSeenByEveryRankThatWaitsForIt) {
  const std::uint64_t seed = GetParam();
  World world(seed, 3 + static_cast<int>(seed % 4));
  const Graph graph =
      collective::make_graph(kSpecs[seed % std::size(kSpecs)], world.size()).value();
  Reduces reduces = make_reduces(world, graph, SyncMode::kNotifyAck, 33, 2);
  expect_death_is_seen(world, reduces, 30, seed);
}

// The weaker modes on a network that tears puts and lets them overtake one another: they never
// hang, and use whole models only. All elements of a model are equal, so those of a sum are, too.
TEST_P(ChaosTest, WeakerModesNeverHangNorTakeATornModel) {
  const std::uint64_t seed = GetParam();
  for (const SyncMode mode : {SyncMode::kBsp, SyncMode::kAsync}) {
    World world(seed, 4);
    const Graph graph = collective::make_graph("complete", world.size()).value();
    Reduces reduces = make_reduces(world, graph, mode, 40, 1);
    constexpr std::uint64_t kSteps = 10;
    std::vector<std::uint64_t> steps(reduces.size());
    std::vector<bool> is_running(reduces.size());
    const bool is_finished = world.run([&](int rank) {
      const auto self = static_cast<std::size_t>(rank);
      if (steps[self] == kSteps) return true;
      const auto model = reduces[self]->model();
      if (!is_running[self]) {
        std::fill(model.begin(), model.end(), static_cast<double>(world.random()() % 1000));
        EXPECT_TRUE(reduces[self]->start().is_ok());
      }
      is_running[self] = true;
      const Status status = reduces[self]->test();
      if (status.is_busy()) return false;
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_TRUE(std::all_of(model.begin(), model.end(), [&](double x) { return x == model[0]; }))
          << "seed " << seed << ' ' << collective::to_string(mode);
      const auto& report = reduces[self]->report();
      EXPECT_EQ(report.inputs + report.torn + report.stale, 3u);
      is_running[self] = false;
      ++steps[self];
      return steps[self] == kSteps;
    });
    EXPECT_TRUE(is_finished) << "seed " << seed << ' ' << collective::to_string(mode);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChaosTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(150)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
