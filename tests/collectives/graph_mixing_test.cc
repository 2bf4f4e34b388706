#include "collectives/graph/mixing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "collectives/graph/generators.h"

namespace dunlin::collective {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;

TEST(Mixing, UniformWeightsAreOneOverTheInputs) {
  const Graph graph = make_graph("root-expander", 9).value();
  const auto matrix = MixingMatrix::make(graph, Weighting::kUniform).value();
  const NodeWeights weights = matrix.weights_of(4);
  EXPECT_DOUBLE_EQ(weights.self, 1.0 / 3);
  EXPECT_THAT(weights.in, ElementsAre(DoubleEq(1.0 / 3), DoubleEq(1.0 / 3)));
}

TEST(Mixing, MetropolisWeightsLookAtBothEnds) {
  const Graph graph = make_graph("star", 5).value();
  const auto matrix = MixingMatrix::make(graph, Weighting::kMetropolis).value();
  EXPECT_NEAR(matrix.weights_of(0).self, 0.2, 1e-15);
  EXPECT_NEAR(matrix.weights_of(3).self, 0.8, 1e-15);
  EXPECT_THAT(matrix.weights_of(3).in, ElementsAre(DoubleNear(0.2, 1e-15)));
}

// Then an average divides once, and is rounded once.
TEST(Mixing, OnCompleteGraphsTheKindsAgreeToTheBit) {
  for (int nodes = 1; nodes <= 64; ++nodes) {
    const Graph graph = make_graph("complete", nodes).value();
    const auto uniform = MixingMatrix::make(graph, Weighting::kUniform).value();
    const auto metropolis = MixingMatrix::make(graph, Weighting::kMetropolis).value();
    EXPECT_EQ(metropolis.self_weight(0), uniform.self_weight(0)) << nodes;
    EXPECT_EQ(metropolis.weights_of(0).in, uniform.weights_of(0).in) << nodes;
  }
}

TEST(Mixing, EveryRowSumsToOne) {
  for (const char* spec : {"star", "chain", "mesh", "torus", "complete"}) {
    const Graph graph = make_graph(spec, 12).value();
    for (const Weighting weighting : {Weighting::kUniform, Weighting::kMetropolis}) {
      const auto matrix = MixingMatrix::make(graph, weighting).value();
      for (int i = 0; i < graph.nodes(); ++i) {
        const NodeWeights weights = matrix.weights_of(i);
        EXPECT_EQ(weights.in.size(), graph.in_neighbors(i).size());
        EXPECT_NEAR(std::accumulate(weights.in.begin(), weights.in.end(), weights.self), 1, 1e-14);
        EXPECT_GT(weights.self, 0);
      }
    }
  }
}

TEST(Mixing, DoublyStochasticWhereRegular) {
  for (int nodes = 1; nodes <= 64; ++nodes) {
    for (const char* spec :
         {"complete", "ring", "bidirectional-ring", "root-expander", "exponential"}) {
      const Graph graph = make_graph(spec, nodes).value();
      EXPECT_TRUE(MixingMatrix::make(graph, Weighting::kUniform)->is_doubly_stochastic())
          << spec << ' ' << nodes;
    }
    for (const char* spec : {"star", "chain", "mesh"}) {
      const Graph graph = make_graph(spec, nodes).value();
      EXPECT_TRUE(MixingMatrix::make(graph, Weighting::kMetropolis)->is_doubly_stochastic())
          << spec << ' ' << nodes;
    }
  }
  for (const char* spec : {"star", "chain", "mesh"}) {
    const Graph graph = make_graph(spec, 12).value();
    EXPECT_FALSE(MixingMatrix::make(graph, Weighting::kUniform)->is_doubly_stochastic()) << spec;
  }
}

TEST(Mixing, TheTransposedProductIsTheTranspose) {
  const Graph graph = make_graph("star", 4).value();
  const auto matrix = MixingMatrix::make(graph, Weighting::kUniform).value();
  const std::vector<double> x{1, 2, 3, 4};
  std::vector<double> y(4);
  matrix.multiply(x, y);
  EXPECT_THAT(y, ElementsAre(DoubleEq(2.5), DoubleEq(1.5), DoubleEq(2), DoubleEq(2.5)));
  matrix.multiply_transposed(x, y);
  EXPECT_THAT(y, ElementsAre(DoubleEq(4.75), DoubleEq(1.25), DoubleEq(1.75), DoubleEq(2.25)));
}

TEST(Mixing, MetropolisNeedsBothDirections) {
  const Graph graph = make_graph("ring", 4).value();
  EXPECT_EQ(
      MixingMatrix::make(graph, Weighting::kMetropolis).status().to_string(),
      "invalid_argument: graph 'ring': metropolis weights need both directions of every edge, but "
      "0 -> 1 has no reverse");
  EXPECT_EQ(parse_weighting("best").status().to_string(),
            "invalid_argument: weights 'best' are unknown; known are uniform, metropolis");
}

}  // namespace
}  // namespace dunlin::collective
