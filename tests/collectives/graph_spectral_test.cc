#include "collectives/graph/spectral.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "collectives/graph/generators.h"

namespace dunlin::collective {
namespace {

Spectrum spectrum_of(const Graph& graph, SpectralOptions options = {},
                     Weighting weighting = Weighting::kUniform) {
  const auto matrix = MixingMatrix::make(graph, weighting).value();
  auto result = spectrum(matrix, options);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  return *result;
}

Spectrum spectrum_of(std::string_view spec, int nodes, SpectralOptions options = {},
                     Weighting weighting = Weighting::kUniform) {
  const Graph graph = make_graph(spec, nodes).value();
  return spectrum_of(graph, options, weighting);
}

SpectralOptions by(SpectralMethod method) {
  return {.method = method};
}

TEST(Spectral, ReferenceValues) {
  EXPECT_NEAR(spectrum_of("complete", 25).gap, 1, 1e-12);
  EXPECT_NEAR(spectrum_of("ring", 25).gap, 0.0079, 5e-5);
  EXPECT_NEAR(spectrum_of("root-expander", 25).gap, 0.142, 5e-4);
}

TEST(Spectral, ClosedForms) {
  constexpr double kPi = std::numbers::pi;
  EXPECT_NEAR(spectrum_of("ring", 25).sigma_2, std::cos(kPi / 25), 1e-14);
  EXPECT_NEAR(spectrum_of("hypercube", 64).gap, 2.0 / 7, 1e-12);
  EXPECT_NEAR(spectrum_of("torus:5x5", 25).gap, 1 - (3 + 2 * std::cos(2 * kPi / 5)) / 5, 1e-12);
  EXPECT_NEAR(spectrum_of("chain", 25, {}, Weighting::kMetropolis).gap,
              1 - (1 + 2 * std::cos(kPi / 25)) / 3, 1e-12);
  EXPECT_NEAR(spectrum_of("star", 25, {}, Weighting::kMetropolis).gap, 1.0 / 25, 1e-12);
}

TEST(Spectral, AStarWithUniformWeightsHasSigma1AboveOne) {
  const Spectrum star = spectrum_of("star", 25);
  EXPECT_FALSE(star.is_doubly_stochastic);
  EXPECT_NEAR(star.sigma_1, 2.50124, 1e-5);
  EXPECT_NEAR(star.gap, 0.5, 1e-12);
  EXPECT_EQ(mixing_rounds(star), std::nullopt);
}

TEST(Spectral, SmallestGraphs) {
  for (const char* spec :
       {"complete", "star", "ring", "chain", "mesh", "hypercube", "exponential"}) {
    EXPECT_EQ(spectrum_of(spec, 1).gap, 1) << spec;
    for (const auto method : {SpectralMethod::kDense, SpectralMethod::kIterative}) {
      EXPECT_NEAR(spectrum_of(spec, 1, by(method)).gap, 1, 1e-12) << spec;
      EXPECT_NEAR(spectrum_of(spec, 2, by(method)).gap, 1, 1e-7) << spec;
    }
  }
}

TEST(Spectral, MethodsAgreeOnCirculantGraphs) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const int nodes = 2 + static_cast<int>(random() % 120);
    for (const char* spec : {"ring", "bidirectional-ring", "root-expander", "exponential"}) {
      const Graph graph = make_graph(spec, nodes).value();
      const Spectrum circulant = spectrum_of(graph, by(SpectralMethod::kCirculant));
      const Spectrum dense = spectrum_of(graph, by(SpectralMethod::kDense));
      const Spectrum iterative = spectrum_of(graph, by(SpectralMethod::kIterative));
      EXPECT_EQ(spectrum_of(graph).method, SpectralMethod::kCirculant);
      EXPECT_NEAR(circulant.sigma_2, dense.sigma_2, 1e-12) << spec << ' ' << nodes;
      EXPECT_NEAR(iterative.sigma_2, dense.sigma_2, 1e-7) << spec << ' ' << nodes;
      EXPECT_NEAR(dense.sigma_1, 1, 1e-12);
    }
  }
}

TEST(Spectral, IterativeAgreesWithDense) {
  for (const Weighting weighting : {Weighting::kUniform, Weighting::kMetropolis}) {
    for (const char* spec :
         {"star", "chain", "mesh", "torus", "random-regular:4", "random-regular:3"}) {
      for (const int nodes : {12, 60, 150}) {
        const Graph graph = make_graph(spec, nodes).value();
        const Spectrum dense = spectrum_of(graph, by(SpectralMethod::kDense), weighting);
        const Spectrum iterative = spectrum_of(graph, by(SpectralMethod::kIterative), weighting);
        EXPECT_TRUE(iterative.converged) << spec << ' ' << nodes;
        EXPECT_NEAR(iterative.sigma_1, dense.sigma_1, 1e-8) << spec << ' ' << nodes;
        EXPECT_NEAR(iterative.sigma_2, dense.sigma_2, 1e-8) << spec << ' ' << nodes;
        EXPECT_EQ(iterative.is_doubly_stochastic, dense.is_doubly_stochastic);
      }
    }
  }
}

TEST(Spectral, DisconnectedGraphsHaveNoGap) {
  const Edge edges[] = {{0, 1}, {1, 0}, {2, 3}, {3, 2}};
  const Graph graph = Graph::from_edges(4, edges, "two pairs").value();
  for (const auto method : {SpectralMethod::kDense, SpectralMethod::kIterative}) {
    const Spectrum pairs = spectrum_of(graph, by(method));
    EXPECT_NEAR(pairs.gap, 0, 1e-12);
    EXPECT_EQ(mixing_rounds(pairs), std::nullopt);
  }
  const Edge halves[] = {{0, 2}, {2, 0}, {1, 3}, {3, 1}};
  const Spectrum circulant = spectrum_of(Graph::from_edges(4, halves, "two halves").value());
  EXPECT_EQ(circulant.method, SpectralMethod::kCirculant);
  EXPECT_EQ(mixing_rounds(circulant), std::nullopt);
}

TEST(Spectral, TheCirculantMethodIsForCirculantGraphs) {
  const Graph graph = make_graph("chain", 5).value();
  const auto matrix = MixingMatrix::make(graph, Weighting::kUniform).value();
  EXPECT_EQ(spectrum(matrix, by(SpectralMethod::kCirculant)).status().to_string(),
            "invalid_argument: graph 'chain' is not circulant");
}

TEST(Spectral, ALargeRingKeepsItsDigits) {
  const double half_angle = std::numbers::pi / 100'000 / 2;
  const double exact = 2 * std::sin(half_angle) * std::sin(half_angle);
  EXPECT_NEAR(spectrum_of("ring", 100'000).gap / exact, 1, 1e-9);
}

TEST(Spectral, ALargeRandomRegularGraph) {
  const Spectrum large = spectrum_of("random-regular:4", 100'000);
  EXPECT_EQ(large.method, SpectralMethod::kIterative);
  EXPECT_TRUE(large.converged);
  // Friedman: the second eigenvalue of a random 4-regular graph is near 2 sqrt(3).
  EXPECT_NEAR(large.sigma_2, (1 + 2 * std::sqrt(3.0)) / 5, 2e-3);
}

TEST(Spectral, RunningOutOfStepsIsSaid) {
  const Spectrum ring =
      spectrum_of("ring", 10'000, {.method = SpectralMethod::kIterative, .max_steps = 50});
  EXPECT_FALSE(ring.converged);
  EXPECT_GE(ring.gap, spectrum_of("ring", 10'000).gap);
}

TEST(Spectral, MixingRounds) {
  EXPECT_EQ(mixing_rounds(spectrum_of("complete", 25)), 1);
  const Spectrum ring = spectrum_of("ring", 25);
  const double rounds = mixing_rounds(ring).value();
  EXPECT_LE(std::pow(ring.sigma_2, rounds), kMixedTo);
  EXPECT_GT(std::pow(ring.sigma_2, rounds - 1), kMixedTo);
}

// Checks the meaning of the mixing time on the matrix itself.
TEST(Spectral, ModelsMeetWithinTheMixingTime) {
  for (const char* spec : {"ring", "root-expander", "exponential", "torus"}) {
    const Graph graph = make_graph(spec, 24).value();
    const auto matrix = MixingMatrix::make(graph, Weighting::kUniform).value();
    std::vector<double> x(24, -1.0 / 24);
    x[0] += 1;
    std::vector<double> y(24);
    const double before = std::sqrt(23.0 / 24);
    const double rounds = mixing_rounds(*spectrum(matrix)).value();
    for (double round = 0; round < rounds; ++round) {
      matrix.multiply(x, y);
      x.swap(y);
    }
    double square = 0;
    for (const double value : x) square += value * value;
    EXPECT_LE(std::sqrt(square), kMixedTo * before) << spec;
  }
}

}  // namespace
}  // namespace dunlin::collective
