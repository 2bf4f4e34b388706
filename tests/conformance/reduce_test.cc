// Stochastic reduce over every transport, against a reference that the test computes.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>

#include "collectives/graph/generators.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Graph;
using collective::make_graph;
using collective::MixingMatrix;
using collective::neighborhood_of;
using collective::ReduceOptions;
using collective::StochasticReduce;
using collective::SyncMode;
using collective::Weighting;
using transport::Fabric;

class ReduceTest : public OverPeers {};

Membership everybody(int size) {
  Membership all;
  for (int rank = 0; rank < size; ++rank) all.members.emplace_back(rank);
  return all;
}

template <typename T>
std::unique_ptr<StochasticReduce<T>> make_reduce(Fabric& fabric, const Graph& graph, SyncMode mode,
                                                 std::size_t count, std::uint32_t depth) {
  ReduceOptions options;
  options.membership = everybody(fabric.size());
  options.neighborhood =
      neighborhood_of(graph, Weighting::kUniform, options.membership.members, fabric.rank())
          .value();
  options.count = count;
  options.mode = mode;
  options.depth = depth;
  auto reduce = StochasticReduce<T>::prepare(fabric, options);
  EXPECT_TRUE(reduce.is_ok()) << reduce.status().to_string();
  const Status status = (*reduce)->connect();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  return std::move(reduce).value();
}

// What a rank does to its model between reduces.
double drift(int rank, std::uint64_t step, std::size_t element) {
  return std::sin(static_cast<double>(rank + 1) * static_cast<double>(step) +
                  static_cast<double>(element % 97));
}

// All ranks' models after `steps` reduces: the mixing matrix applied to models that drift.
std::vector<std::vector<double>> reference(const Graph& graph, std::size_t count,
                                           std::uint64_t steps) {
  const MixingMatrix mixing = MixingMatrix::make(graph, Weighting::kUniform).value();
  const auto nodes = static_cast<std::size_t>(graph.nodes());
  std::vector<std::vector<double>> models(nodes, std::vector<double>(count));
  for (std::uint64_t step = 1; step <= steps; ++step) {
    for (std::size_t node = 0; node < nodes; ++node) {
      for (std::size_t i = 0; i < count; ++i)
        models[node][i] += drift(static_cast<int>(node), step, i);
    }
    std::vector<double> x(nodes);
    std::vector<double> y(nodes);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t node = 0; node < nodes; ++node) x[node] = models[node][i];
      mixing.multiply(x, y);
      for (std::size_t node = 0; node < nodes; ++node) models[node][i] = y[node];
    }
  }
  return models;
}

template <typename T>
void compare_with_reference(Fabric& fabric, const char* spec, std::size_t count,
                            std::uint32_t depth) {
  constexpr std::uint64_t kSteps = 60;
  const Graph graph = make_graph(spec, fabric.size()).value();
  auto reduce = make_reduce<T>(fabric, graph, SyncMode::kNotifyAck, count, depth);
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    for (std::size_t i = 0; i < count; ++i)
      reduce->model()[i] += static_cast<T>(drift(fabric.rank().value(), step, i));
    const auto report = reduce->reduce(std::chrono::seconds(30));
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_EQ(report->step, step);
    EXPECT_EQ(static_cast<int>(report->inputs), graph.in_degree(fabric.rank().value()));
    EXPECT_EQ(report->torn + report->stale, 0u);
  }
  sync(fabric, "all are done");
  const auto expected = reference(graph, count, kSteps)[fabric.rank().index()];
  // Each step rounds once per input and drift; averaging doesn't amplify.
  const double bound = static_cast<double>(std::numeric_limits<T>::epsilon()) * kSteps *
                       (fabric.size() + 2) * kSteps;
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_NEAR(reduce->model()[i], expected[i], bound) << "element " << i;
}

TEST_P(ReduceTest, NotifyAckIsExactOnEveryGraph) {
  for (const char* spec : {"complete", "ring", "star", "root-expander", "chain", "exponential"}) {
    run(4, [spec](Fabric& fabric) { compare_with_reference<float>(fabric, spec, 1003, 1); });
    run(4, [spec](Fabric& fabric) { compare_with_reference<double>(fabric, spec, 64, 3); });
  }
}

TEST_P(ReduceTest, SmallLargeAndSingle) {
  run(3, [](Fabric& fabric) { compare_with_reference<float>(fabric, "complete", 1, 2); });
  run(2, [](Fabric& fabric) { compare_with_reference<float>(fabric, "complete", 100'000, 2); });
  run(1, [](Fabric& fabric) { compare_with_reference<double>(fabric, "complete", 10, 2); });
}

// The weaker modes average the models that they find. Whichever they find, the weights add up to
// one.
TEST_P(ReduceTest, WeakerModesKeepTheWeightsNormalized) {
#ifdef __SANITIZE_THREAD__
  if (GetParam() == PeerKind::kThreads)
    GTEST_SKIP() << "these modes race by design: readers read slots that are being written";
#endif
  for (const SyncMode mode : {SyncMode::kBsp, SyncMode::kAsync}) {
    run(4, [mode](Fabric& fabric) {
      const Graph graph = make_graph("complete", fabric.size()).value();
      auto reduce = make_reduce<float>(fabric, graph, mode, 5000, 2);
      for (int step = 0; step < 200; ++step) {
        std::fill(reduce->model().begin(), reduce->model().end(), 1.0F);
        const auto report = reduce->reduce(std::chrono::seconds(30));
        ASSERT_TRUE(report.is_ok()) << report.status().to_string();
        EXPECT_EQ(report->inputs + report->torn + report->stale, 3u);
        for (const float value : reduce->model()) ASSERT_NEAR(value, 1.0F, 1e-5F);
      }
      sync(fabric, "all are done");
    });
  }
}

// In float64, six sixths add up to less than one: divided by their sum, weights would miss 1 / 6.
// The barrier may be over before all models are here, as they take other lanes, so there are
// several rounds. Those with all models count. All rounds have the same models.
TEST_P(ReduceTest, AveragesOfEqualWeightsAreRoundedOnceInTheWeakerModesToo) {
  run(6, [](Fabric& fabric) {
    const Graph graph = make_graph("complete", fabric.size()).value();
    auto reduce = make_reduce<double>(fabric, graph, SyncMode::kBsp, 500, 2);
    const auto value = [](int rank, std::size_t i) {
      return static_cast<double>(static_cast<int>(i) * (rank + 1) % 101);
    };
    constexpr int kRounds = 20;
    int complete_rounds = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < 500; ++i) reduce->model()[i] = value(fabric.rank().value(), i);
      const auto report = reduce->reduce(std::chrono::seconds(30) * timeout_factor());
      ASSERT_TRUE(report.is_ok()) << report.status().to_string();
      EXPECT_EQ(report->inputs + report->torn + report->stale, 5u);
      // A rank that is ahead does not write over models that others still read.
      sync(fabric, "round " + std::to_string(round) + " is done");
      if (report->inputs < 5) continue;
      ++complete_rounds;
      for (std::size_t i = 0; i < 500; ++i) {
        double sum = 0;
        for (int rank = 0; rank < 6; ++rank) sum += value(rank, i);
        ASSERT_EQ(reduce->model()[i], sum / 6) << i;
      }
    }
    EXPECT_GE(complete_rounds, 1);
    sync(fabric, "all are done");
  });
}

TEST_P(ReduceTest, RanksWithModelsOfOtherTypesAreTold) {
  run(2, [](Fabric& fabric) {
    const Graph graph = make_graph("complete", fabric.size()).value();
    ReduceOptions options;
    options.membership = everybody(fabric.size());
    options.neighborhood =
        neighborhood_of(graph, Weighting::kUniform, options.membership.members, fabric.rank())
            .value();
    const auto connect = [&]<typename T>(std::size_t count) {
      options.count = count;
      return StochasticReduce<T>::prepare(fabric, options).value()->connect();
    };
    const Status status =
        fabric.rank() == Rank(0) ? connect.operator()<float>(200) : connect.operator()<double>(100);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    sync(fabric, "told");
  });
}

TEST_P(ReduceTest, AModelOfMoreBytesThanThereAreIsRefused) {
  run(1, [](Fabric& fabric) {
    ReduceOptions options;
    options.membership = everybody(1);
    options.count = std::size_t{1} << 62;
    const Status status = StochasticReduce<float>::prepare(fabric, options).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  });
}

// Nothing has come from the neighbor, and the own model has no weight.
TEST_P(ReduceTest, WithoutAnyWeightTheModelStays) {
  run(2, [](Fabric& fabric) {
    const Rank other(1 - fabric.rank().value());
    ReduceOptions options;
    options.membership = everybody(2);
    options.neighborhood.in = options.neighborhood.out = {other};
    options.neighborhood.in_weights = {1.0};
    options.neighborhood.self_weight = 0;
    options.count = 3;
    options.mode = SyncMode::kAsync;
    auto reduce = StochasticReduce<float>::prepare(fabric, options).value();
    ASSERT_TRUE(reduce->connect().is_ok());
    std::ranges::fill(reduce->model(), 7.0F);
    sync(fabric, "connected");
    if (fabric.rank() == Rank(0)) {
      const auto report = reduce->reduce(std::chrono::seconds(60) * timeout_factor());
      ASSERT_TRUE(report.is_ok()) << report.status().to_string();
      EXPECT_EQ(report->inputs, 0u);
      for (const float each : reduce->model()) EXPECT_EQ(each, 7.0F);
    }
    sync(fabric, "reduced");
  });
}

INSTANTIATE_TEST_SUITE_P(Peers, ReduceTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
