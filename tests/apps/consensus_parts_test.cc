// Tests the parts of dunlin-consensus: linear algebra, problems and their optimum, weights,
// histories.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "apps/consensus/history.h"
#include "apps/consensus/topology.h"
#include "runtime/random.h"
#include "tests/apps/consensus_ranks.h"

namespace dunlin::testing {
namespace {

using namespace dunlin::consensus;

TEST(LinearAlgebra, SolvesWhatItMultiplied) {
  Random random(7);
  for (const std::size_t size : {1, 2, 5, 20}) {
    SymmetricMatrix matrix(size);
    for (std::size_t i = 0; i < 2 * size; ++i) {
      Vector row(size);
      for (double& value : row) value = random.normal();
      matrix.add_square(row, 0.5);
    }
    Vector expected(size);
    for (double& value : expected) value = random.normal();
    Vector right(size);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) right[i] += matrix(i, j) * expected[j];
    }
    const auto solution = solve(matrix, right);
    ASSERT_TRUE(solution.is_ok()) << solution.status().to_string();
    EXPECT_LT(distance(*solution, expected), 1e-10 * norm(expected));
  }
}

TEST(LinearAlgebra, RefusesWhatIsNotPositiveDefinite) {
  SymmetricMatrix matrix(2);
  matrix(0, 0) = 1;
  matrix(0, 1) = matrix(1, 0) = 2;
  matrix(1, 1) = 1;
  EXPECT_EQ(solve(matrix, {1, 1}).status().code(), Code::kInvalidArgument);
}

TEST(LinearAlgebra, EigenvaluesOfASecondDifference) {
  constexpr std::size_t kSize = 12;
  SymmetricMatrix matrix(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    matrix(i, i) = 2;
    if (i > 0) matrix(i, i - 1) = matrix(i - 1, i) = -1;
  }
  const EigenvalueRange range = eigenvalue_range(matrix);
  EXPECT_NEAR(range.smallest, 2 - 2 * std::cos(M_PI / (kSize + 1)), 1e-13);
  EXPECT_NEAR(range.largest, 2 + 2 * std::cos(M_PI / (kSize + 1)), 1e-13);
}

class ProblemTest : public ::testing::TestWithParam<ProblemKind> {
 protected:
  ProblemOptions options() const { return {.kind = GetParam(), .dimension = 5, .rows = 20}; }
};

TEST_P(ProblemTest, HessianIsTheGradientsSlopeAndNoSteeperThanL) {
  const auto problem = make_problem(options(), 1).value();
  Vector x{0.3, -1, 0.5, 2, -0.2};
  const SymmetricMatrix hessian = problem->hessian(x);
  EXPECT_LE(eigenvalue_range(hessian).largest, problem->smoothness() * (1 + 1e-12));
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    Vector ahead(x.size());
    Vector behind(x.size());
    x[i] += kStep;
    problem->gradient(x, ahead);
    x[i] -= 2 * kStep;
    problem->gradient(x, behind);
    x[i] += kStep;
    for (std::size_t j = 0; j < x.size(); ++j) {
      EXPECT_NEAR((ahead[j] - behind[j]) / (2 * kStep), hessian(i, j), 1e-8);
    }
  }
}

TEST_P(ProblemTest, GradientsOfAllRanksCancelAtTheOptimum) {
  const Team team(options(), 4);
  Vector sum(5);
  double scale = 0;
  for (const auto& problem : team.problems) {
    Vector gradient(5);
    problem->gradient(team.optimum.x, gradient);
    scale += norm(gradient);
    for (std::size_t i = 0; i < 5; ++i) sum[i] += gradient[i];
  }
  EXPECT_LT(norm(sum), 1e-13 * scale);
  EXPECT_GT(scale, 0.1);  // no rank is at its own optimum
  EXPECT_GT(team.optimum.curvature.smallest, 0);
  EXPECT_LE(team.optimum.curvature.largest, team.optimum.smoothness);
}

TEST_P(ProblemTest, WrongSizesAreRefused) {
  for (const auto& spoil : std::vector<void (*)(ProblemOptions&)>{
           [](ProblemOptions& one) { one.dimension = 0; },
           [](ProblemOptions& one) { one.rows = 0; }, [](ProblemOptions& one) { one.noise = -1; },
           [](ProblemOptions& one) { one.spread = NAN; }}) {
    ProblemOptions wrong = options();
    spoil(wrong);
    EXPECT_EQ(make_problem(wrong, 0).status().code(), Code::kInvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ProblemTest,
                         ::testing::Values(ProblemKind::kLeastSquares, ProblemKind::kLogistic),
                         [](const auto& one) {
                           return one.param == ProblemKind::kLogistic ? "logistic" : "squares";
                         });

TEST(Topology, WeightsAreStochasticAsTheStyleSays) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const Style style : {Style::kDoublyStochastic, Style::kPush}) {
      for (const char* spec : {"complete", "ring", "bidirectional-ring", "chain", "star", "mesh",
                               "exponential", "one-peer-exponential", "one-peer:mesh"}) {
        const auto topology = Topology::make(spec, ranks, style);
        if (style == Style::kDoublyStochastic && std::string(spec) == "one-peer:mesh") {
          EXPECT_EQ(topology.status().code(), Code::kInvalidArgument);
          continue;
        }
        ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
        for (std::uint64_t step = 0; step < 4; ++step) {
          const auto matrix = matrix_of(*topology, step);
          for (std::size_t i = 0; i < matrix.size(); ++i) {
            double row = 0;
            double column = 0;
            for (std::size_t j = 0; j < matrix.size(); ++j) {
              EXPECT_GE(matrix[i][j], 0);
              row += matrix[i][j];
              column += matrix[j][i];
            }
            EXPECT_EQ(column, 1) << spec << ", " << ranks << " ranks";
            if (style == Style::kDoublyStochastic) {
              EXPECT_EQ(row, 1) << spec;
            }
          }
        }
      }
    }
  }
}

TEST(Topology, RefusesWhatHasNoSuchWeights) {
  for (const char* spec : {"moebius", "one-peer:moebius", "one-peer:"}) {
    EXPECT_FALSE(Topology::make(spec, 4, Style::kPush).is_ok()) << spec;
  }
}

TEST(Topology, ExactDiffusionsRateIsThatOfItsAveraging) {
  for (const char* spec : {"ring", "bidirectional-ring", "exponential", "chain"}) {
    const auto topology = Topology::make(spec, 8, Style::kDoublyStochastic).value();
    // Iterates x = V (2 x - x before) from a disagreement. It may oscillate, so that the largest of
    // many steps is compared with the largest of as many later ones.
    const auto matrix = matrix_of(topology, 0);
    Vector x{1, 0.5, 0, -2, 0.25, 0, 1, -0.75};
    Vector before = x;
    constexpr int kSteps = 100;
    double largest[4] = {};
    for (int step = 0; step < 4 * kSteps; ++step) {
      Vector corrected(8);
      for (std::size_t i = 0; i < 8; ++i) corrected[i] = 2 * x[i] - before[i];
      before = x;
      for (std::size_t i = 0; i < 8; ++i) x[i] = (corrected[i] + dot(matrix[i], corrected)) / 2;
      largest[step / kSteps] = std::max(largest[step / kSteps], norm(x));
    }
    const double growth = std::pow(largest[3] / largest[1], 1.0 / (2 * kSteps));
    EXPECT_NEAR(growth, *topology.exact_diffusion_rate(), 0.005) << spec;
  }
}

TEST(History, ComparesAllRanks) {
  // Two equal ranks: no disagreement, and equal errors.
  struct Twins final : Ranks {
    int size() const override { return 2; }
    Status sum(std::span<double> values) override {
      for (double& value : values) value *= 2;
      return Status::ok();
    }
    Status max(std::span<double>) override { return Status::ok(); }
  } twins;
  Trajectory trajectory;
  trajectory.record(0, Vector{0, 0});
  trajectory.record(5, Vector{3, 0});
  trajectory.record(6, Vector{NAN, 0});
  const auto history = trajectory.compare(Vector{3, 4}, twins).value();
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history[0], (Moment{.iteration = 0, .error_max = 1, .error_rms = 1, .consensus = 0}));
  EXPECT_EQ(history[1].iteration, 5U);
  EXPECT_DOUBLE_EQ(history[1].error_max, 0.8);
  EXPECT_DOUBLE_EQ(history[1].error_rms, 0.8);
  EXPECT_EQ(history[2].error_max, INFINITY);
}

TEST(History, FitsTheRateAboveTheFloor) {
  std::vector<Moment> history;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const double error = std::pow(0.9, static_cast<double>(i)) + 1e-12;
    history.push_back({.iteration = i, .error_rms = error});
  }
  EXPECT_NEAR(*fitted_rate(history), 0.9, 1e-3);
  for (Moment& moment : history) moment.error_rms = 1 + static_cast<double>(moment.iteration);
  EXPECT_FALSE(fitted_rate(history));
  EXPECT_FALSE(fitted_rate({}));
}

}  // namespace
}  // namespace dunlin::testing
