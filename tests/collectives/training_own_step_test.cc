// Training methods whose workers take their own steps (MethodOptions::has_own_step), through the
// Synchronizer, over shared memory, with threads as ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "collectives/training/synchronizer.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using training::MethodKind;
using training::MethodOptions;
using training::Synchronizer;

constexpr int kWorkers = 4;

void run_team(const MethodOptions& options, int workers,
              const std::function<void(Synchronizer&, int)>& train) {
  RunOptions run;
  run.size = workers;
  run.configure = [](Config& config) { config.transports = {"shm"}; };
  run_ranks(run, [&](transport::Fabric& fabric) {
    auto synchronizer = Synchronizer::create(fabric, options, std::chrono::seconds(60));
    ASSERT_TRUE(synchronizer.is_ok()) << synchronizer.status().to_string();
    train(**synchronizer, fabric.rank().value());
  });
}

// A gradient that depends on the parameters, the worker and the iteration.
void compute_gradient(int worker, std::uint64_t iteration, std::span<const float> x,
                      std::span<float> gradient) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t phase =
        i * 7 + static_cast<std::size_t>(worker) * 13 + static_cast<std::size_t>(iteration) * 5;
    gradient[i] = 0.25F * x[i] + static_cast<float>(phase % 1000) / 1000 - 0.5F;
  }
}

// What the workers' models are after some iterations, by worker. With has_own_step the worker takes
// the step, in parameters(); otherwise the method takes the same one.
std::vector<std::vector<float>> train_and_return(const MethodOptions& options, int workers) {
  constexpr std::uint64_t kIterations = 12;
  constexpr float kRate = 0.25F;
  std::vector<std::vector<float>> models(static_cast<std::size_t>(workers));
  run_team(options, workers, [&](Synchronizer& synchronizer, int rank) {
    for (std::size_t i = 0; i < options.count; ++i)
      synchronizer.parameters()[i] = static_cast<float>(i % 17) / 17;
    std::vector<float> gradient(options.count);
    for (std::uint64_t t = 0; t < kIterations; ++t) {
      ASSERT_TRUE(synchronizer.begin(t).is_ok());
      const std::span<float> x = synchronizer.parameters();
      compute_gradient(rank, t, x, gradient);
      if (options.has_own_step) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] -= kRate * gradient[i];
      } else {
        std::copy(gradient.begin(), gradient.end(), synchronizer.gradient().begin());
      }
      ASSERT_TRUE(synchronizer.finish(kRate, false).is_ok());
    }
    EXPECT_TRUE(synchronizer.leave().is_ok());
    const std::span<float> x = synchronizer.parameters();
    models[static_cast<std::size_t>(rank)].assign(x.begin(), x.end());
  });
  return models;
}

TEST(TrainingOwnStepTest, IsTheStepThatTheMethodTakes) {
  MethodOptions local;
  local.kind = MethodKind::kLocalSgd;
  local.section_length = 3;
  MethodOptions stochastic;
  stochastic.kind = MethodKind::kStochastic;
  stochastic.graph = "root-expander";
  MethodOptions partial;
  partial.kind = MethodKind::kPartial;
  partial.groups = collective::GroupSource::kStatic;
  partial.generator.layout = {2, 2};
  for (MethodOptions options : {local, stochastic, partial}) {
    options.count = 1000;
    const auto expected = train_and_return(options, kWorkers);
    options.has_own_step = true;
    EXPECT_EQ(train_and_return(options, kWorkers), expected) << to_string(options.kind);
  }
  // Alone, a worker of AD-PSGD gets the bits that it has written. With others, which neighbors meet
  // isn't determined.
  MethodOptions pairs;
  pairs.kind = MethodKind::kAdPsgd;
  pairs.count = 1000;
  const auto expected = train_and_return(pairs, 1);
  pairs.has_own_step = true;
  EXPECT_EQ(train_and_return(pairs, 1), expected);
}

// Workers of AD-PSGD that take their own steps lose none, and none counts twice: steps of whole
// numbers add up.
TEST(TrainingOwnStepTest, IsAddedToAModelThatOthersAverageWith) {
  MethodOptions options;
  options.kind = MethodKind::kAdPsgd;
  options.count = 100;
  options.has_own_step = true;
  constexpr std::uint64_t kIterations = 50;
  std::vector<double> ends(kWorkers);
  run_team(options, kWorkers, [&](Synchronizer& synchronizer, int rank) {
    for (std::uint64_t t = 0; t < kIterations; ++t) {
      ASSERT_TRUE(synchronizer.begin(t).is_ok());
      for (float& parameter : synchronizer.parameters()) parameter += static_cast<float>(rank + 1);
      std::this_thread::yield();
      ASSERT_TRUE(synchronizer.finish(0, false).is_ok());
    }
    EXPECT_TRUE(synchronizer.leave().is_ok());
    ends[static_cast<std::size_t>(rank)] = synchronizer.parameters()[7];
  });
  constexpr double kSum = kIterations * (1 + 2 + 3 + 4);
  EXPECT_NEAR(std::accumulate(ends.begin(), ends.end(), 0.0), kSum, 1e-3 * kSum);
}

}  // namespace
}  // namespace dunlin::testing
