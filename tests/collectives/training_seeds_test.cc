// AD-PSGD and the parameter servers in virtual time on the hostile network, with many seeds.
// Workers have different speeds, some leave early, and one may die. A failure prints its seed;
// repeat it with --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/collectives/training_support.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using training::Method;
using training::MethodKind;
using training::MethodOptions;

constexpr std::size_t kCount = 37;
const char* const kSpecs[] = {"complete", "ring", "root-expander", "star", "exponential", "chain"};

// The methods of all ranks of a job. Workers come first.
class Team {
 public:
  Team(HostileWorld& world, const MethodOptions& options, std::uint64_t iterations,
       const ComputeGradient& compute)
      : world_(world) {
    for (int rank = 0; rank < world.size(); ++rank)
      methods_.push_back(training::prepare_method(world.fabric(rank), options).value());
    for (auto& method : methods_) EXPECT_TRUE(method->connect().is_ok());
    for (int rank = 0; rank < world.size(); ++rank) {
      if (method(rank).is_server()) break;
      SteppedWorker& worker =
          workers_.emplace_back(method(rank), rank, iterations, compute, 1.0F, world.random());
      worker.slowness = 1 + world.random()() % 12;
    }
    server_errors_.resize(static_cast<std::size_t>(world.size()));
  }

  Method& method(int rank) { return *methods_[static_cast<std::size_t>(rank)]; }
  std::deque<SteppedWorker>& workers() { return workers_; }
  int count() const { return static_cast<int>(workers_.size()); }
  const Status& error(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return index < workers_.size() ? workers_[index].error() : server_errors_[index];
  }

  bool act(int rank) {
    if (world_.network().is_lost(Rank(rank))) return true;
    const auto index = static_cast<std::size_t>(rank);
    if (index < workers_.size()) return workers_[index].act();
    Status status = method(rank).test();
    if (status.is_error()) server_errors_[index] = status;
    return !status.is_busy();
  }
  ::testing::AssertionResult run() {
    if (world_.run([this](int rank) { return act(rank); })) return ::testing::AssertionSuccess();
    ::testing::AssertionResult failure = ::testing::AssertionFailure();
    failure << "nothing moves any more";
    for (const SteppedWorker& worker : workers_) failure << ", " << worker.finished();
    failure << " iterations are finished";
    for (int rank = 0; rank < world_.size(); ++rank) {
      for (const auto& awaited : method(rank).awaited())
        failure << "; rank " << rank << " waits for " << awaited.what << " from rank "
                << awaited.peer.value();
      if (error(rank).is_error()) failure << "; rank " << rank << ": " << error(rank).to_string();
    }
    return failure;
  }
  // Lets a random rank of [first, end) die at a random time.
  Rank lose_one_of(int first, int end) {
    auto& random = world_.random();
    const Rank victim(first + static_cast<int>(random() % static_cast<std::uint64_t>(end - first)));
    world_.network().lose_at(victim, TimePoint() + std::chrono::microseconds(random() % 4000));
    return victim;
  }

 private:
  HostileWorld& world_;
  std::vector<std::unique_ptr<Method>> methods_;
  std::deque<SteppedWorker> workers_;
  std::vector<Status> server_errors_;
};

// Whole numbers that differ between workers, iterations and elements.
float gradient_of(int worker, std::uint64_t iteration, std::size_t element) {
  return static_cast<float>(static_cast<std::uint64_t>(worker + 1) * (element % 7 + 1) + iteration);
}

void compute_numbers(int worker, std::uint64_t iteration, std::span<const float>,
                     std::span<float> gradient) {
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = gradient_of(worker, iteration, i);
}

MethodOptions server_options(MethodKind kind, std::uint64_t seed) {
  MethodOptions options;
  options.kind = kind;
  options.count = kCount;
  options.servers = 1 + static_cast<int>(seed % 3);
  options.piece_elements = 1 + seed % 19;  // many pieces, some of them inline
  return options;
}

int servers_and(const MethodOptions& options, std::uint64_t seed) {
  return options.servers + 1 + static_cast<int>(seed % 5);
}

class TrainingSeedsTest : public ::testing::TestWithParam<std::uint64_t> {};

// Gradients count exactly once. Averages keep the sum of all models, also if they end while workers
// leave.
void expect_sum_of_models(std::uint64_t seed, bool leaves) {
  HostileWorld world(seed, 2 + static_cast<int>(seed % 6));
  MethodOptions options;
  options.kind = MethodKind::kAdPsgd;
  options.count = kCount;
  options.graph = kSpecs[seed % std::size(kSpecs)];
  options.seed = seed;
  constexpr std::uint64_t kIterations = 12;
  Team team(world, options, kIterations, compute_numbers);
  double expected[kCount] = {};
  for (int rank = 0; rank < world.size(); ++rank) {
    team.workers()[static_cast<std::size_t>(rank)].leaves = leaves;
    for (std::size_t i = 0; i < kCount; ++i) {
      team.method(rank).parameters()[i] = static_cast<float>(rank * 64);
      expected[i] += rank * 64;
      for (std::uint64_t t = 0; t < kIterations; ++t) expected[i] -= gradient_of(rank, t, i);
    }
  }
  ASSERT_TRUE(team.run()) << "seed " << seed;
  // The ranks that were asked for the last averages complete theirs.
  std::vector<int> acts(static_cast<std::size_t>(world.size()));
  ASSERT_TRUE(world.run([&](int rank) {
    team.method(rank).progress();
    if (world.network().events_in_flight() == 0) ++acts[static_cast<std::size_t>(rank)];
    return acts[static_cast<std::size_t>(rank)] > 50;
  }));
  std::uint64_t averages = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    ASSERT_TRUE(team.error(rank).is_ok()) << "seed " << seed << team.error(rank).to_string();
    averages += team.method(rank).report().synchronizations;
    // begin() and the end of leave() copy the model to parameters().
    if (!leaves) {
      ASSERT_TRUE(team.method(rank).begin(kIterations).is_ok());
    }
    for (std::size_t i = 0; i < kCount; ++i) expected[i] -= team.method(rank).parameters()[i];
  }
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_NEAR(expected[i], 0, 0.02) << "seed " << seed << " element " << i;
  // Both ranks count an average. Few iterations have none, unless neighbors have left.
  EXPECT_EQ(averages % 2, 0u) << "seed " << seed;
  const std::uint64_t few = kIterations * static_cast<std::uint64_t>(world.size()) / 2;
  EXPECT_GT(averages, leaves ? 0 : few) << "seed " << seed;
}

TEST_P(TrainingSeedsTest, AdPsgdKeepsTheSumOfModels) {
  expect_sum_of_models(GetParam(), false);
}

TEST_P(TrainingSeedsTest, AdPsgdKeepsTheSumOfModelsOfWorkersThatHaveLeft) {
  expect_sum_of_models(GetParam(), true);
}

// The leaves of a star average only with its hub, and one of them always wants to.
TEST_P(TrainingSeedsTest, AdPsgdBusyHubEndsItsIterations) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 7);
  MethodOptions options;
  options.kind = MethodKind::kAdPsgd;
  options.count = kCount;
  options.graph = "star";
  options.seed = seed;
  Team team(world, options, 1'000'000, compute_numbers);
  for (SteppedWorker& worker : team.workers()) worker.slowness = 1;
  const SteppedWorker& hub = team.workers().front();
  const std::uint64_t& averages = team.method(0).report().synchronizations;
  std::uint64_t averages_before = 0;
  team.workers().front().on_finished = [&](std::uint64_t) {
    // Its own average and, in turn with its proposals, those of others during the iteration.
    EXPECT_LT(averages - averages_before, 40u) << "seed " << seed;
    averages_before = averages;
  };
  constexpr std::uint64_t kIterations = 20;
  EXPECT_TRUE(world.run([&](int rank) {
    team.act(rank);
    return hub.finished() >= kIterations || averages - averages_before > 1000;
  })) << "seed "
      << seed;
  EXPECT_GE(hub.finished(), kIterations) << "seed " << seed;
}

// Workers leave at different times, and one dies. The others complete all their iterations.
TEST_P(TrainingSeedsTest, AdPsgdGoesOnWithoutWhoLeavesOrDies) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 6));
  MethodOptions options;
  options.kind = MethodKind::kAdPsgd;
  options.count = kCount;
  options.graph = kSpecs[seed % std::size(kSpecs)];
  options.seed = seed;
  Team team(world, options, 20, compute_numbers);
  for (SteppedWorker& worker : team.workers()) worker.stop_after = 1 + world.random()() % 30;
  const Rank victim = team.lose_one_of(0, world.size());
  ASSERT_TRUE(team.run()) << "seed " << seed;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (Rank(rank) == victim && world.network().is_lost(victim)) continue;
    const SteppedWorker& worker = team.workers()[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(worker.error().is_ok()) << "seed " << seed << ": " << worker.error().to_string();
    EXPECT_EQ(worker.finished(), std::min<std::uint64_t>(worker.stop_after, 20)) << "seed " << seed;
  }
}

// All workers have the same parameters after the same iteration. They result from the mean of the
// gradients of all workers that have not left.
TEST_P(TrainingSeedsTest, ParameterServersAverageExactly) {
  const std::uint64_t seed = GetParam();
  const MethodOptions options = server_options(MethodKind::kParameterServer, seed);
  HostileWorld world(seed, servers_and(options, seed));
  auto& random = world.random();
  std::vector<std::uint64_t> iterations;
  for (int worker = 0; worker < world.size() - options.servers; ++worker)
    iterations.push_back(1 + random() % 12);
  const std::uint64_t most = *std::max_element(iterations.begin(), iterations.end());
  std::vector<std::vector<double>> expected(most, std::vector<double>(kCount));
  for (std::uint64_t t = 0; t < most; ++t) {
    for (std::size_t i = 0; i < kCount; ++i) {
      double sum = 0;
      double workers = 0;
      for (std::size_t worker = 0; worker < iterations.size(); ++worker) {
        if (iterations[worker] <= t) continue;
        sum += gradient_of(static_cast<int>(worker), t, i);
        workers += 1;
      }
      const double before = t == 0 ? static_cast<double>(100 + i) : expected[t - 1][i];
      expected[t][i] = before - sum / workers;
    }
  }
  Team team(world, options, 0, compute_numbers);
  team.workers().clear();
  for (int rank = 0; rank < world.size() - options.servers; ++rank) {
    Method& method = team.method(rank);
    for (std::size_t i = 0; i < kCount; ++i) method.parameters()[i] = static_cast<float>(100 + i);
    SteppedWorker& worker = team.workers().emplace_back(
        method, rank, iterations[static_cast<std::size_t>(rank)], compute_numbers, 1.0F, random);
    worker.slowness = 1 + random() % 12;
    worker.on_finished = [&, rank](std::uint64_t t) {
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_NEAR(team.method(rank).parameters()[i], expected[t][i], 2e-3)
            << "seed " << seed << " rank " << rank << " iteration " << t << " element " << i;
      }
    };
  }
  ASSERT_TRUE(team.run()) << "seed " << seed;
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_TRUE(team.error(rank).is_ok()) << "seed " << seed << team.error(rank).to_string();
    if (!team.method(rank).is_server()) {
      EXPECT_EQ(team.method(rank).report().iterations, iterations[static_cast<std::size_t>(rank)]);
    } else {
      EXPECT_EQ(team.method(rank).report().synchronizations, most) << "seed " << seed;
    }
  }
}

// When one worker wants to stop, all stop after the same iteration.
TEST_P(TrainingSeedsTest, ParameterServersAgreeOnTheEnd) {
  const std::uint64_t seed = GetParam();
  const MethodOptions options = server_options(MethodKind::kParameterServer, seed);
  HostileWorld world(seed, servers_and(options, seed));
  Team team(world, options, 1000, compute_numbers);
  std::uint64_t last = 1000;
  for (SteppedWorker& worker : team.workers()) {
    worker.stop_after = 3 + world.random()() % 9;
    last = std::min(last, worker.stop_after);
  }
  ASSERT_TRUE(team.run()) << "seed " << seed;
  for (const SteppedWorker& worker : team.workers()) {
    EXPECT_TRUE(worker.error().is_ok()) << "seed " << seed << worker.error().to_string();
    EXPECT_EQ(worker.finished(), last) << "seed " << seed;
  }
}

// The death of a worker or server is an error at all ranks, which names the dead rank.
TEST_P(TrainingSeedsTest, ADeathEndsSynchronousTraining) {
  const std::uint64_t seed = GetParam();
  const MethodOptions options = server_options(MethodKind::kParameterServer, seed);
  HostileWorld world(seed, servers_and(options, seed));
  Team team(world, options, 15, compute_numbers);
  const Rank victim = team.lose_one_of(0, world.size());
  ASSERT_TRUE(team.run()) << "seed " << seed;
  bool is_anybody_short = false;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (Rank(rank) == victim) continue;
    if (team.error(rank).is_ok()) continue;
    is_anybody_short = true;
    EXPECT_EQ(team.error(rank).code(), Code::kPeerDead)
        << "seed " << seed << ": " << team.error(rank).to_string();
    EXPECT_EQ(team.error(rank).peer(), victim)
        << "seed " << seed << ": " << team.error(rank).to_string();
  }
  for (int rank = 0; rank < team.count() && !is_anybody_short; ++rank) {
    if (Rank(rank) == victim) continue;
    EXPECT_EQ(team.workers()[static_cast<std::size_t>(rank)].finished(), 15u) << "seed " << seed;
  }
}

// Asynchronous servers with the death of a worker. In the end their parameters contain all
// gradients of the other workers exactly once, and those of the dead one up to its death.
TEST_P(TrainingSeedsTest, AsynchronousServersApplyEachGradientOnce) {
  const std::uint64_t seed = GetParam();
  const MethodOptions options = server_options(MethodKind::kAsyncParameterServer, seed);
  HostileWorld world(seed, servers_and(options, seed) + 1);
  constexpr std::uint64_t kIterations = 15;
  // All elements are equal, so a sum tells how often each worker's gradient is in it.
  const auto unit = [](int worker) { return static_cast<float>(1 << (4 * worker)); };
  Team team(world, options, kIterations,
            [&](int worker, std::uint64_t, std::span<const float>, std::span<float> gradient) {
              std::fill(gradient.begin(), gradient.end(), unit(worker));
            });
  const bool has_death = seed % 4 != 0;
  const Rank victim = has_death ? team.lose_one_of(0, team.count()) : Rank();
  ASSERT_TRUE(team.run()) << "seed " << seed;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (Rank(rank) == victim) continue;
    ASSERT_TRUE(team.error(rank).is_ok()) << "seed " << seed << team.error(rank).to_string();
    if (!team.method(rank).is_server()) {
      EXPECT_EQ(team.workers()[static_cast<std::size_t>(rank)].finished(), kIterations);
      continue;
    }
    const std::span<float> share = team.method(rank).parameters();
    auto rest = static_cast<std::uint64_t>(-share[0]);
    for (const float element : share) ASSERT_EQ(element, share[0]) << "seed " << seed;
    for (int worker = 0; worker < team.count(); ++worker, rest /= 16) {
      const SteppedWorker& stepped = team.workers()[static_cast<std::size_t>(worker)];
      EXPECT_GE(rest % 16, stepped.finished()) << "seed " << seed << " worker " << worker;
      EXPECT_LE(rest % 16, stepped.given()) << "seed " << seed << " worker " << worker;
    }
    EXPECT_EQ(rest, 0u) << "seed " << seed;
  }
}

// As after a resume, each worker has different parameters. All shares take those of one worker: the
// first one, unless it dies.
TEST_P(TrainingSeedsTest, AsynchronousServersBeginWithTheModelOfOneWorker) {
  const std::uint64_t seed = GetParam();
  const MethodOptions options = server_options(MethodKind::kAsyncParameterServer, seed);
  HostileWorld world(seed, servers_and(options, seed) + 1);
  Team team(world, options, 3,
            [](int, std::uint64_t, std::span<const float>, std::span<float> gradient) {
              std::fill(gradient.begin(), gradient.end(), 0.0F);
            });
  for (int rank = 0; rank < team.count(); ++rank) {
    const std::span<float> parameters = team.method(rank).parameters();
    std::fill(parameters.begin(), parameters.end(), static_cast<float>(rank + 1));
  }
  const bool has_death = seed % 2 != 0;
  if (has_death) {
    const auto moment = std::chrono::microseconds(world.random()() % 300);
    world.network().lose_at(Rank(0), TimePoint() + moment);
  }
  ASSERT_TRUE(team.run()) << "seed " << seed;
  for (int rank = team.count(); rank < world.size(); ++rank) {
    ASSERT_TRUE(team.error(rank).is_ok()) << "seed " << seed << team.error(rank).to_string();
    const std::span<float> share = team.method(rank).parameters();
    EXPECT_GE(share[0], 1) << "seed " << seed;
    EXPECT_LE(share[0], has_death ? 2 : 1) << "seed " << seed;
    for (const float element : share) ASSERT_EQ(element, share[0]) << "seed " << seed;
  }
}

// A worker that dies after its last message, maybe before the ACK arrives, counts as left.
TEST_P(TrainingSeedsTest, ADeathAfterTheFarewellStopsNoServer) {
  const std::uint64_t seed = GetParam();
  const MethodOptions options = server_options(MethodKind::kAsyncParameterServer, seed);
  HostileWorld world(seed, servers_and(options, seed) + 1);
  Team team(world, options, 5, compute_numbers);
  team.workers().front().stop_after = 1;
  const auto delay = std::chrono::microseconds(world.random()() % 20);
  bool is_doomed = false;
  ASSERT_TRUE(world.run([&](int rank) {
    const bool is_over = team.act(rank);
    if (!is_doomed && team.workers().front().is_leaving()) {
      is_doomed = true;
      world.network().lose_at(Rank(0), world.network().now() + delay);
    }
    return is_over;
  })) << "seed "
      << seed;
  ASSERT_TRUE(is_doomed);
  for (int rank = 1; rank < world.size(); ++rank)
    EXPECT_TRUE(team.error(rank).is_ok()) << "seed " << seed << team.error(rank).to_string();
}

TEST_P(TrainingSeedsTest, AServersDeathEndsAsynchronousTraining) {
  const std::uint64_t seed = GetParam();
  const MethodOptions options = server_options(MethodKind::kAsyncParameterServer, seed);
  HostileWorld world(seed, servers_and(options, seed));
  Team team(world, options, 15, compute_numbers);
  const Rank victim = team.lose_one_of(team.count(), world.size());
  ASSERT_TRUE(team.run()) << "seed " << seed;
  for (const SteppedWorker& worker : team.workers()) {
    if (worker.error().is_ok()) {
      EXPECT_EQ(worker.finished(), 15u) << "seed " << seed;
      continue;
    }
    EXPECT_EQ(worker.error().code(), Code::kPeerDead)
        << "seed " << seed << worker.error().to_string();
    EXPECT_EQ(worker.error().peer(), victim) << "seed " << seed << worker.error().to_string();
  }
}

// While a slow worker computes, the others do 20 iterations each: they would wait forever if they
// waited for it.
TEST_P(TrainingSeedsTest, ASlowWorkerSlowsNobody) {
  const std::uint64_t seed = GetParam();
  for (const MethodKind kind : {MethodKind::kAsyncParameterServer, MethodKind::kAdPsgd}) {
    MethodOptions options = server_options(kind, seed);
    options.servers = 1;
    options.seed = seed;
    HostileWorld world(seed, 5);
    constexpr std::uint64_t kOfSlowOne = 3;
    constexpr std::uint64_t kOfOthers = 20 * kOfSlowOne;
    Team team(world, options, kOfOthers, compute_numbers);
    SteppedWorker& slow = team.workers().front();
    slow.stop_after = kOfSlowOne;
    slow.may_end = [&] {
      return std::all_of(team.workers().begin() + 1, team.workers().end(),
                         [&](const SteppedWorker& other) {
                           return other.finished() >= 20 * (slow.finished() + 1);
                         });
    };
    ASSERT_TRUE(team.run()) << "seed " << seed << ' ' << to_string(kind);
    for (const SteppedWorker& worker : team.workers()) {
      EXPECT_TRUE(worker.error().is_ok()) << "seed " << seed << worker.error().to_string();
      EXPECT_EQ(worker.finished(), &worker == &slow ? kOfSlowOne : kOfOthers) << "seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, TrainingSeedsTest,
                         ::testing::Range<std::uint64_t>(1, 1 + seeds(200)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
