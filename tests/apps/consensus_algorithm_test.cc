// Runs the synchronous algorithms of dunlin-consensus with all ranks in one thread, on graphs of 1
// to 8 ranks, and tests how near they come to the optimum and how fast.
#include "apps/consensus/algorithm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/apps/consensus_ranks.h"

namespace dunlin::testing {
namespace {

using namespace dunlin::consensus;

constexpr ProblemOptions kSquares{.dimension = 4, .rows = 30};
constexpr ProblemOptions kLogistic{.kind = ProblemKind::kLogistic, .dimension = 4, .rows = 30};

Topology graph(const char* spec, int ranks, Style style = Style::kDoublyStochastic) {
  auto topology = Topology::make(spec, ranks, style);
  EXPECT_TRUE(topology.is_ok()) << topology.status().to_string();
  return std::move(topology).value();
}

class ExactMethods : public ::testing::TestWithParam<std::tuple<Method, int>> {};

TEST_P(ExactMethods, ReachTheOptimumOnEveryGraph) {
  const auto [method, ranks] = GetParam();
  const double step = method == Method::kExactDiffusion ? 0.5 : 0.2;
  for (const ProblemOptions& options : {kSquares, kLogistic}) {
    const Team team(options, ranks);
    for (const char* spec : {"bidirectional-ring", "exponential", "complete", "star"}) {
      const auto end = team.run(method, graph(spec, ranks), step, 3000);
      EXPECT_LT(end.error, 1e-12) << to_string(options.kind) << " over " << spec;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, ExactMethods,
    ::testing::Combine(::testing::Values(Method::kExactDiffusion, Method::kGradientTracking),
                       ::testing::Range(1, 9)),
    [](const auto& one) {
      return std::string(std::get<0>(one.param) == Method::kExactDiffusion ? "Exact" : "Tracking") +
             std::to_string(std::get<1>(one.param));
    });

TEST(GradientTracking, ReachesTheOptimumWhileTheGraphChanges) {
  const Team team(kSquares, 8);
  EXPECT_LT(team.run(Method::kGradientTracking, graph("one-peer-exponential", 8), 0.1, 3000).error,
            1e-12);
}

TEST(GradientTracking, ConvergesLinearlyAtGradientDescentsRateForSmallSteps) {
  const Team team(kSquares, 4);
  const Topology topology = graph("bidirectional-ring", 4);
  const double factor = 0.1;
  const double rate = std::pow(team.run(Method::kGradientTracking, topology, factor, 500).error /
                                   team.run(Method::kGradientTracking, topology, factor, 300).error,
                               1.0 / 200);
  const double expected = 1 - factor / team.optimum.smoothness * team.optimum.curvature.smallest;
  EXPECT_NEAR(rate, expected, 0.1 * (1 - expected));
}

TEST(Dgd, EndsInANeighborhoodThatShrinksWithTheStep) {
  const Team team(kSquares, 6);
  const Topology topology = graph("bidirectional-ring", 6);
  double before = 0;
  for (const double factor : {0.08, 0.04, 0.02, 0.01}) {
    const auto end = team.run(Method::kDgd, topology, factor, static_cast<int>(400 / factor));
    EXPECT_GT(end.error, 1e-6);
    if (before > 0) {
      EXPECT_NEAR(end.error / before, 0.5, 0.06) << "at a step of " << factor;
    }
    before = end.error;
  }
}

TEST(Dgd, HasNoBiasWhereOneRankHearsAllOthers) {
  const Team team(kSquares, 6);
  EXPECT_LT(team.run(Method::kDgd, graph("complete", 6), 0.5, 2000).error, 1e-12);
}

TEST(Dgd, ShrinkingStepsGetNearerThanConstantOnes) {
  const Team team(kSquares, 6);
  const Topology topology = graph("bidirectional-ring", 6);
  const double constant = team.run(Method::kDgd, topology, 0.2, 20000).error;
  const double shrinking = team.run(Method::kDgd, topology, 0.2, 20000, 0.5).error;
  EXPECT_LT(shrinking, constant / 20);
}

TEST(PushDiging, ReachesTheOptimumOverDirectedGraphsThatChange) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const ProblemOptions& options : {kSquares, kLogistic}) {
      const Team team(options, ranks);
      for (const char* spec :
           {"one-peer-exponential", "one-peer:mesh", "one-peer:star", "exponential", "star"}) {
        const auto end =
            team.run(Method::kPushDiging, graph(spec, ranks, Style::kPush), 0.05, 8000);
        EXPECT_LT(end.error, 1e-10) << to_string(options.kind) << ", " << ranks << " over " << spec;
      }
    }
  }
}

TEST(PushDiging, NeedsItsWeights) {
  // With the same column-stochastic weights, plain gradient tracking ends elsewhere.
  const Team team(kSquares, 5);
  const Topology topology = graph("star", 5, Style::kPush);
  EXPECT_GT(team.run(Method::kGradientTracking, topology, 0.05, 8000).error, 1e-3);
  EXPECT_LT(team.run(Method::kPushDiging, topology, 0.05, 8000).error, 1e-10);
}

TEST(Algorithms, RefuseStepsThatCannotWork) {
  const auto problem = make_problem(kSquares, 0).value();
  for (const double step : {0.0, -1.0, double(NAN), double(INFINITY)}) {
    EXPECT_EQ(make_algorithm(Method::kDgd, *problem, {step, 0}).status().code(),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(make_algorithm(Method::kExactDiffusion, *problem, {0.1, 0.5}).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace dunlin::testing
