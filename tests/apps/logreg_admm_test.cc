// Tests the equations of ConsensusAdmm, and that ranks with parts of the rows find the common
// minimum.
#include "apps/logreg/admm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "tests/apps/logreg_support.h"

namespace dunlin::logreg {
namespace {

// All ranks in one thread; the all-reduce is a sum in the order of the ranks.
class Job {
 public:
  Job(std::vector<svm::Dataset> of_ranks, AdmmOptions options, double bias = -1)
      : shards(std::move(of_ranks)) {
    options.ranks = static_cast<int>(shards.size());
    for (const svm::Dataset& shard : shards) designs.emplace_back(shard, bias);
    for (const Design& design : designs) {
      ranks.push_back(std::make_unique<ConsensusAdmm>(design, options));
    }
  }

  // The residuals, with bounds for these tolerances.
  ConsensusAdmm::Residuals iterate(double absolute = 0, double relative = 0) {
    sum.assign(designs[0].columns(), 0);
    Vector message(sum.size());
    for (const auto& rank : ranks) {
      report = rank->update_x(message);
      add_scaled(sum, 1, message);
      messages.push_back(message);
    }
    sums = {};
    for (const auto& rank : ranks) {
      rank->update_z(sum);
      const auto addends = rank->addends();
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += addends[k];
    }
    const auto residuals = ranks[0]->residuals(sums, absolute, relative);
    for (const auto& rank : ranks) rank->adapt(residuals);
    return residuals;
  }
  double objective() const { return ranks[0]->objective(sums); }

  std::vector<svm::Dataset> shards;
  std::vector<Design> designs;
  std::vector<std::unique_ptr<ConsensusAdmm>> ranks;
  std::vector<Vector> messages;  // of all iterations
  Vector sum;
  ConsensusAdmm::Addends sums{};
  TronReport report;
};

std::vector<svm::Dataset> shards_of(std::uint64_t rows, std::uint32_t features,
                                    std::uint32_t ranks) {
  std::vector<svm::Dataset> shards;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    shards.push_back(generated(rows, features, {rank, ranks}));
  }
  return shards;
}

TEST(ConsensusAdmm, ZMinimizesItsFunction) {
  Job job(shards_of(60, 20, 3), {.cost = 2, .rho = 0.7});
  job.iterate();
  job.iterate();
  // The slope of g(z) = 1/2 |z|^2 + rho/2 sum |x_i - z + u_i|^2 at z, along every axis.
  const std::span<const double> z = job.ranks[0]->z();
  for (std::size_t k = 0; k < z.size(); ++k) {
    EXPECT_NEAR(z[k] + 0.7 * (3 * z[k] - job.sum[k]), 0, 1e-12) << k;
  }
}

TEST(ConsensusAdmm, AllRanksHaveTheSameZ) {
  Job job(shards_of(60, 20, 3), {});
  for (int i = 0; i < 5; ++i) job.iterate();
  for (const auto& rank : job.ranks) {
    EXPECT_TRUE(std::ranges::equal(rank->z(), job.ranks[0]->z()));
  }
}

TEST(ConsensusAdmm, XMinimizesItsFunction) {
  const std::vector<svm::Dataset> shards = shards_of(60, 20, 1);
  Job job(shards, {.cost = 2, .rho = 0.7, .tron_tolerance = 1e-10});
  job.iterate();
  // In the first iteration, z and u are 0, and the message is x.
  ProximalLogistic function(job.designs[0], 2, 0.7);
  Vector gradient(20);
  function.value(job.messages[0]);
  function.gradient(gradient);
  EXPECT_LE(norm(gradient), 1e-9 * job.report.first_gradient_norm);
  // In the second iteration, the center is z - u, with u = x - z.
  const Vector z(job.ranks[0]->z().begin(), job.ranks[0]->z().end());
  Vector u = job.messages[0];
  add_scaled(u, -1, z);
  job.iterate();
  Vector x = job.messages[1];
  add_scaled(x, -1, u);
  for (std::size_t k = 0; k < 20; ++k) function.center()[k] = z[k] - u[k];
  function.value(x);
  function.gradient(gradient);
  EXPECT_LE(norm(gradient), 1e-8);
}

TEST(ConsensusAdmm, ManyRanksFindTheMinimumOfTheWhole) {
  const svm::Dataset whole = generated(301, 40);
  for (const double bias : {-1.0, 1.0}) {
    const double least = solve_whole(Design(whole, bias), 1, 1e-10)->report.value;
    for (const std::uint32_t ranks : {1U, 2U, 3U, 7U}) {
      const auto shards = shards_of(301, 40, ranks);
      Job job(shards, {.rho = 1}, bias);
      int iterations = 0;
      while (!job.iterate(1e-8, 1e-8).are_small()) ASSERT_LT(++iterations, 3000);
      EXPECT_NEAR(job.objective() / least, 1, 1e-10) << ranks << " ranks, bias " << bias;
    }
  }
}

TEST(ConsensusAdmm, RanksMayHaveNoRows) {
  const svm::Dataset whole = generated(3, 10);
  const double least = solve_whole(Design(whole, -1), 1, 1e-10)->report.value;
  const auto shards = shards_of(3, 10, 5);
  ASSERT_EQ(shards[4].rows(), 0U);
  Job job(shards, {});
  for (int i = 0; i < 300; ++i) job.iterate();
  EXPECT_NEAR(job.objective() / least, 1, 1e-10);
}

TEST(ConsensusAdmm, InTheEndTheDualVariablesAreTheGradientsOfTheLosses) {
  const auto shards = shards_of(200, 15, 2);
  Job job(shards, {.cost = 0.5, .rho = 3, .tron_tolerance = 1e-6});
  for (int i = 0; i < 2000; ++i) job.iterate();
  // rho sum u_i = z after every (6b) and (6c); |u| follows from the addends.
  const std::span<const double> z = job.ranks[0]->z();
  double dual_square = 0;
  for (const Design& design : job.designs) {
    ProximalLogistic loss(design, 0.5, 0);
    Vector gradient(15);
    loss.value(z);
    loss.gradient(gradient);
    dual_square += dot(gradient, gradient) / (3 * 3);
  }
  EXPECT_NEAR(job.sums[ConsensusAdmm::kDual] / dual_square, 1, 1e-6);
  EXPECT_NEAR(job.sums[ConsensusAdmm::kSolution] / (2 * dot(z, z)), 1, 1e-6);
}

TEST(ConsensusAdmm, ResidualsAreBoyds) {
  const auto shards = shards_of(60, 20, 2);
  Job job(shards, {.rho = 0.5});
  job.iterate();
  const Vector before(job.ranks[0]->z().begin(), job.ranks[0]->z().end());
  const auto residuals = job.iterate(1e-3, 1e-2);
  Vector change(job.ranks[0]->z().begin(), job.ranks[0]->z().end());
  const double size = norm(change);
  add_scaled(change, -1, before);
  EXPECT_NEAR(residuals.dual, 0.5 * std::sqrt(2) * norm(change), 1e-12);
  EXPECT_NEAR(residuals.primal, std::sqrt(job.sums[ConsensusAdmm::kPrimal]), 1e-12);
  const double by_element = std::sqrt(2 * 20) * 1e-3;
  EXPECT_NEAR(residuals.primal_bound,
              by_element + 1e-2 * std::max(std::sqrt(job.sums[ConsensusAdmm::kSolution]),
                                           std::sqrt(2) * size),
              1e-12);
  EXPECT_NEAR(residuals.dual_bound,
              by_element + 1e-2 * 0.5 * std::sqrt(job.sums[ConsensusAdmm::kDual]), 1e-12);
  using Residuals = ConsensusAdmm::Residuals;
  EXPECT_TRUE((Residuals{1, 2, 1, 2}.are_small()));
  EXPECT_FALSE((Residuals{1.1, 2, 1, 2}.are_small()));
  EXPECT_FALSE((Residuals{1, 2.1, 1, 2}.are_small()));
}

TEST(ConsensusAdmm, AnAdaptiveRhoFollowsTheResiduals) {
  const auto shards = shards_of(301, 40, 3);
  const svm::Dataset whole = generated(301, 40);
  const double least = solve_whole(Design(whole, -1), 1, 1e-10)->report.value;
  const auto iterations_from = [&](double rho, bool is_adaptive) {
    Job job(shards, {.rho = rho, .is_adaptive = is_adaptive});
    int iterations = 0;
    do {
      job.iterate();
    } while (++iterations < 3000 && std::abs(job.objective() / least - 1) > 1e-6);
    return iterations;
  };
  for (const double rho : {1e-3, 1e3}) {
    EXPECT_LT(iterations_from(rho, true), 200) << rho;
    EXPECT_LT(2 * iterations_from(rho, true), iterations_from(rho, false)) << rho;
  }
}

TEST(ConsensusAdmm, RhoFallsWithALargeDualResidualAndRisesWithALargePrimalOne) {
  const svm::Dataset data = generated(60, 20);
  const Design design(data, -1);
  ConsensusAdmm admm(design, {.rho = 8, .is_adaptive = true});
  Vector message(20);
  admm.update_x(message);
  admm.update_z(message);
  const auto dual_square = [&] { return admm.addends()[ConsensusAdmm::kDual]; };
  const double before = dual_square();
  ASSERT_GT(before, 0);
  admm.adapt({1, 10.5, 0, 0});
  EXPECT_EQ(admm.rho(), 4);
  EXPECT_EQ(dual_square(), 4 * before);  // lambda = rho u stays
  admm.adapt({1, 9.5, 0, 0});
  EXPECT_EQ(admm.rho(), 4);
  admm.adapt({10.5, 1, 0, 0});
  EXPECT_EQ(admm.rho(), 8);
  EXPECT_EQ(dual_square(), before);
  // In the end rho stays constant.
  for (int i = 0; i < 200; ++i) admm.adapt({1, 100, 0, 0});
  EXPECT_EQ(admm.rho(), std::ldexp(8, -97));

  ConsensusAdmm fixed(design, {.rho = 8});
  fixed.adapt({1, 100, 0, 0});
  EXPECT_EQ(fixed.rho(), 8);
}

}  // namespace
}  // namespace dunlin::logreg
