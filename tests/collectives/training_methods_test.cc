// The training methods through the Synchronizer, over shared memory, with threads as ranks (with
// processes for deaths). They find a minimum that no rank finds alone. Models that should be equal
// are equal. Workers stop together. No rank waits for a rank that it does not need.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/collectives/training_support.h"
#include "tests/conformance/shared.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using training::MethodKind;
using training::MethodOptions;
using training::Synchronizer;

constexpr int kWorkers = 4;
constexpr auto kTimeout = std::chrono::seconds(60);

bool is_static(const MethodOptions& options) {
  return options.kind == MethodKind::kPartial && options.groups == collective::GroupSource::kStatic;
}

// Methods whose workers end one by one and continue without dead ones.
bool is_independent(const MethodOptions& options) {
  return options.kind == MethodKind::kAdPsgd || options.kind == MethodKind::kAsyncParameterServer ||
         (options.kind == MethodKind::kPartial && !is_static(options));
}

struct Case {
  std::string name;
  MethodOptions options;
  float learning_rate = 0.5F;
  std::uint64_t iterations = 200;  // of workers that do not end alone
};

// Runs `train` on the workers; the servers serve.
void run_team(const MethodOptions& options, int workers,
              const std::function<void(Synchronizer&, int)>& train,
              PeerKind kind = PeerKind::kThreads, const std::set<int>& killed = {}) {
  RunOptions run;
  run.kind = kind;
  run.size = workers + (has_servers(options.kind) ? options.servers : 0);
  run.killed = killed;
  run.configure = [](Config& config) { config.transports = {"shm"}; };
  run_ranks(run, [&](transport::Fabric& fabric) {
    auto synchronizer = Synchronizer::create(fabric, options, kTimeout);
    ASSERT_TRUE(synchronizer.is_ok()) << synchronizer.status().to_string();
    EXPECT_EQ((*synchronizer)->is_server(), fabric.rank().value() >= workers);
    train(**synchronizer, fabric.rank().value());
  });
}

void serve_well(Synchronizer& synchronizer) {
  const Status served = synchronizer.serve();
  EXPECT_TRUE(served.is_ok()) << served.to_string();
}

// Runs all iterations and leaves; the servers serve.
void train_well(Synchronizer& synchronizer, int rank, std::uint64_t iterations,
                const ComputeGradient& compute, float learning_rate) {
  if (synchronizer.is_server()) return serve_well(synchronizer);
  for (std::uint64_t t = 0; t < iterations; ++t) {
    const auto ended = iterate(synchronizer, rank, t, compute, learning_rate);
    ASSERT_TRUE(ended.is_ok()) << rank << ": " << ended.status().to_string();
    ASSERT_FALSE(*ended);
  }
  const Status left = synchronizer.leave();
  EXPECT_TRUE(left.is_ok()) << left.to_string();
  EXPECT_EQ(synchronizer.report().iterations, iterations);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, MethodKind kind) -> Case& {
    Case& added = cases.emplace_back();
    added.name = name;
    added.options.kind = kind;
    added.options.count = LeastSquares::kUnknowns;
    added.options.piece_elements = 5;
    return added;
  };
  add("AllReduce", MethodKind::kAllReduce).learning_rate = 1;
  Case& momentum = add("AllReduceMomentum", MethodKind::kAllReduce);
  momentum.options.sgd.momentum = 0.5F;
  add("StragglerRing", MethodKind::kStragglerRing).learning_rate = 1;
  Case& plain_ring = add("StragglerRingNeverLate", MethodKind::kStragglerRing);
  plain_ring.options.lateness.mode = collective::LatenessMode::kNever;
  plain_ring.options.sgd.momentum = 0.5F;
  add("ParameterServer", MethodKind::kParameterServer).learning_rate = 1;
  Case& sharded = add("ShardedParameterServer", MethodKind::kParameterServer);
  sharded.learning_rate = 1;
  sharded.options.servers = 3;
  Case& async = add("AsyncParameterServer", MethodKind::kAsyncParameterServer);
  async.learning_rate = 0.2F;
  async.options.servers = 2;
  add("AdPsgd", MethodKind::kAdPsgd);
  Case& ring = add("AdPsgdRing", MethodKind::kAdPsgd);
  ring.options.graph = "ring";
  Case& local = add("LocalSgd", MethodKind::kLocalSgd);
  local.options.section_length = 4;
  const std::pair<const char*, collective::SyncMode> modes[] = {
      {"NotifyAck", collective::SyncMode::kNotifyAck},
      {"Bsp", collective::SyncMode::kBsp},
      {"Async", collective::SyncMode::kAsync}};
  for (const auto& [name, mode] : modes) {
    Case& stochastic = add(std::string("Stochastic") + name, MethodKind::kStochastic);
    stochastic.options.sync = mode;
    stochastic.options.graph = "root-expander";
  }
  for (const collective::GroupSource source : collective::kGroupSources) {
    Case& partial = add(std::string("Partial_") + to_string(source), MethodKind::kPartial);
    partial.options.groups = source;
    partial.options.generator.layout = {2, 2};
    partial.options.section_length = source == collective::GroupSource::kBuffered ? 2 : 1;
    partial.iterations = 600;
  }
  return cases;
}

class TrainingMethodTest : public ::testing::TestWithParam<Case> {};

// Workers that end alone meet as often as the scheduler lets them, so each of them trains until all
// models have reached the minimum. A worker that gets little of the processor does few iterations
// meanwhile, and others may do any number: the one with the fewest has a limit. The workers of
// other methods all do the same number of iterations.
TEST_P(TrainingMethodTest, ReachesTheMinimum) {
  constexpr double kError = 1e-3;
  constexpr double kErrorToStop = 1e-4;  // a step or an average after it cannot exceed kError
  constexpr std::uint64_t kMostIterations = 1'000'000;
  constexpr std::uint64_t kMostOfTheSlowest = 50'000;
  const Case& test = GetParam();
  const bool ends_alone = training::ends_alone(test.options);
  const LeastSquares problem(kWorkers);
  const ComputeGradient compute = [&](int worker, std::uint64_t, std::span<const float> x,
                                      std::span<float> gradient) {
    problem.gradient(worker, x, gradient);
    std::this_thread::yield();
  };
  std::vector<std::atomic<bool>> is_there(kWorkers);
  // Set once all are there. From then on no worker may need another one, as some have left.
  std::atomic<bool> are_all_there{false};
  std::mutex iterations_mutex;
  std::uint64_t fewest = kMostIterations;  // iterations of a worker
  run_team(test.options, kWorkers, [&](Synchronizer& synchronizer, int rank) {
    if (synchronizer.is_server()) return serve_well(synchronizer);
    const std::uint64_t most = ends_alone ? kMostIterations : test.iterations;
    for (std::uint64_t t = 0; t < most && !are_all_there; ++t) {
      const auto ended = iterate(synchronizer, rank, t, compute, test.learning_rate);
      ASSERT_TRUE(ended.is_ok()) << rank << ": " << ended.status().to_string();
      is_there[static_cast<std::size_t>(rank)] =
          LeastSquares::error(synchronizer.parameters()) < kErrorToStop;
      if (ends_alone && std::all_of(is_there.begin(), is_there.end(),
                                    [](const auto& there) { return there.load(); }))
        are_all_there = true;
    }
    const Status left = synchronizer.leave();
    EXPECT_TRUE(left.is_ok()) << left.to_string();
    EXPECT_LT(LeastSquares::error(synchronizer.parameters()), kError) << rank;
    EXPECT_GT(synchronizer.report().synchronizations, 0u);
    EXPECT_GT(synchronizer.report().bytes_sent, 0u);
    const std::lock_guard lock(iterations_mutex);
    fewest = std::min(fewest, synchronizer.report().iterations);
  });
  EXPECT_LT(fewest, kMostOfTheSlowest);
}

INSTANTIATE_TEST_SUITE_P(Methods, TrainingMethodTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& test) { return test.param.name; });

// A gradient of many pieces that depends on the parameters, the worker and the iteration.
void compute_large(int worker, std::uint64_t iteration, std::span<const float> x,
                   std::span<float> gradient) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto phase = static_cast<float>(
        (i * 7 + static_cast<std::size_t>(worker) * 13 + static_cast<std::size_t>(iteration) * 5) %
        1000);
    gradient[i] = 0.25F * x[i] + phase / 1000 - 0.5F;
  }
}

float initial(std::size_t i) {
  return static_cast<float>(i % 17) / 17;
}

// The result of one process with the whole batch: uses the mean of the workers' gradients, in
// double.
std::vector<double> reference(const MethodOptions& options, int workers, std::uint64_t iterations,
                              double learning_rate) {
  std::vector<double> x(options.count);
  std::vector<double> velocity(options.count);
  std::vector<float> rounded(options.count);
  std::vector<float> gradient(options.count);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = initial(i);
  for (std::uint64_t t = 0; t < iterations; ++t) {
    std::vector<double> mean(options.count);
    std::transform(x.begin(), x.end(), rounded.begin(),
                   [](double value) { return static_cast<float>(value); });
    for (int worker = 0; worker < workers; ++worker) {
      compute_large(worker, t, rounded, gradient);
      for (std::size_t i = 0; i < x.size(); ++i) mean[i] += gradient[i] / workers;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      velocity[i] = static_cast<double>(options.sgd.momentum) * velocity[i] + mean[i] +
                    static_cast<double>(options.sgd.weight_decay) * x[i];
      x[i] -= learning_rate * velocity[i];
    }
  }
  return x;
}

void expect_reference(const MethodOptions& options) {
  constexpr std::uint64_t kIterations = 6;
  const std::vector<double> expected = reference(options, kWorkers, kIterations, 0.3F);
  run_team(options, kWorkers, [&](Synchronizer& synchronizer, int rank) {
    if (!synchronizer.is_server()) {
      for (std::size_t i = 0; i < options.count; ++i) synchronizer.parameters()[i] = initial(i);
    }
    train_well(synchronizer, rank, kIterations, compute_large, 0.3F);
    if (synchronizer.is_server()) return;
    double worst = 0;
    for (std::size_t i = 0; i < options.count; ++i)
      worst = std::max(worst, std::abs(synchronizer.parameters()[i] - expected[i]));
    EXPECT_LT(worst, 2e-6) << to_string(options.kind) << ", rank " << rank;
  });
}

TEST(TrainingEqualityTest, SynchronousMethodsDoWhatOneProcessDoesWithTheWholeBatch) {
  MethodOptions options;
  options.count = 70'001;
  options.piece_elements = 9'999;
  options.sgd = {0.9F, 1e-3F};
  expect_reference(options);
  options.kind = MethodKind::kParameterServer;
  options.servers = 2;
  expect_reference(options);
}

TEST(TrainingEqualityTest, LocalSgdThatAveragesAlwaysIsAllReduce) {
  MethodOptions options;
  options.count = 70'001;
  options.kind = MethodKind::kLocalSgd;
  expect_reference(options);
}

// A resumed run averages after the same iterations as one that was never interrupted.
TEST(TrainingResumeTest, SectionsOfLocalSgdAreThoseOfTheWholeTraining) {
  MethodOptions options;
  options.count = 100;
  options.kind = MethodKind::kLocalSgd;
  options.section_length = 4;
  run_team(options, kWorkers, [&](Synchronizer& synchronizer, int rank) {
    const auto own = static_cast<float>(rank);
    for (float& parameter : synchronizer.parameters()) parameter = own;
    const ComputeGradient compute = [](int, std::uint64_t, std::span<const float>,
                                       std::span<float> gradient) {
      std::fill(gradient.begin(), gradient.end(), 1.0F);
    };
    for (std::uint64_t t = 2; t < 9; ++t) {
      ASSERT_TRUE(iterate(synchronizer, rank, t, compute, 0.5F).is_ok());
      EXPECT_EQ(synchronizer.report().synchronizations, (t + 1) / 4) << t;
      const float mean = t < 3 ? own : 1.5F;
      EXPECT_EQ(synchronizer.parameters()[0], mean - static_cast<float>(t - 1) / 2) << t;
    }
    EXPECT_TRUE(synchronizer.leave().is_ok());
  });
}

// All workers end after the same iteration, although only one wants to.
TEST(TrainingStopTest, AllStopTogether) {
  for (const Case& test : all_cases()) {
    if (is_independent(test.options) || test.options.sync == collective::SyncMode::kAsync) continue;
    std::vector<std::uint64_t> ended(kWorkers);
    run_team(test.options, kWorkers, [&](Synchronizer& synchronizer, int rank) {
      if (synchronizer.is_server()) return serve_well(synchronizer);
      const LeastSquares problem(kWorkers);
      const ComputeGradient compute = [&](int worker, std::uint64_t, std::span<const float> x,
                                          std::span<float> gradient) {
        problem.gradient(worker, x, gradient);
      };
      for (std::uint64_t t = 0; t < 1000; ++t) {
        const bool wants_to_stop = rank == 2 && t >= 9;
        const auto stopped = iterate(synchronizer, rank, t, compute, 0.1F, wants_to_stop);
        ASSERT_TRUE(stopped.is_ok()) << test.name << ": " << stopped.status().to_string();
        if (!*stopped) continue;
        ended[static_cast<std::size_t>(rank)] = t;
        break;
      }
      EXPECT_TRUE(synchronizer.leave().is_ok()) << test.name;
    });
    EXPECT_GE(ended[0], 9u) << test.name;
    // Static groups: the request takes two periods, from the next one on.
    EXPECT_LE(ended[0], is_static(test.options) ? 24u : 12u) << test.name;
    for (const std::uint64_t iteration : ended) EXPECT_EQ(iteration, ended[0]) << test.name;
  }
}

// In each iteration of the slow worker the others do 20 of theirs before it ends its computation:
// they would wait forever if they waited for it.
TEST(TrainingSlowdownTest, ASlowWorkerSlowsNobody) {
  for (const MethodKind kind : {MethodKind::kAsyncParameterServer, MethodKind::kAdPsgd}) {
    MethodOptions options;
    options.kind = kind;
    options.count = 1000;
    constexpr std::uint64_t kOfSlowOne = 5;
    constexpr std::uint64_t kOfOthers = 20 * kOfSlowOne;
    std::atomic<std::uint64_t> slowest_of_others{0};
    std::vector<std::atomic<std::uint64_t>> done(kWorkers);
    const ComputeGradient compute = [&](int worker, std::uint64_t iteration, std::span<const float>,
                                        std::span<float> gradient) {
      std::fill(gradient.begin(), gradient.end(), 1.0F);
      done[static_cast<std::size_t>(worker)] = iteration;
      const auto is_behind = [&] {
        return std::any_of(done.begin() + 1, done.end(), [&](const auto& count) {
          return count < std::min(20 * (iteration + 1), kOfOthers - 1);
        });
      };
      const auto end = std::chrono::steady_clock::now() + kTimeout;
      while (worker == 0 && is_behind() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(worker != 0 || !is_behind()) << "the others wait for the slow one";
    };
    run_team(options, kWorkers, [&](Synchronizer& synchronizer, int rank) {
      train_well(synchronizer, rank, rank == 0 ? kOfSlowOne : kOfOthers, compute, 0.01F);
    });
  }
}

// One rank is killed: a worker during an iteration, a server after a while. It dies after all ranks
// have created their synchronizers, since a death makes the creation fail. `judge` gets the results
// of the others.
void train_until_death(const MethodOptions& options, int victim,
                       const std::function<void(const Status&, int)>& judge) {
  const int ranks = kWorkers + (has_servers(options.kind) ? options.servers : 0);
  const SharedCount created;
  run_team(options, kWorkers,
           [&](Synchronizer& synchronizer, int rank) {
             created->fetch_add(1);
             const ComputeGradient compute = [&](int worker, std::uint64_t t,
                                                 std::span<const float>,
                                                 std::span<float> gradient) {
               std::fill(gradient.begin(), gradient.end(), 1.0F);
               if (worker != victim || t != 3) return;
               ASSERT_TRUE(await_count(created, ranks));
               raise(SIGKILL);
             };
             Status status;
             if (synchronizer.is_server() && rank == victim) {
               ASSERT_TRUE(await_count(created, ranks));
               std::this_thread::sleep_for(std::chrono::seconds(2));
               raise(SIGKILL);
             }
             if (synchronizer.is_server()) {
               status = synchronizer.serve();
             } else {
               // If the death is an error, run until it arrives.
               const bool is_survived = victim < kWorkers && is_independent(options);
               const std::uint64_t most = is_survived ? 200 : 100'000;
               for (std::uint64_t t = 0; t < most && status.is_ok(); ++t) {
                 std::this_thread::sleep_for(std::chrono::milliseconds(2));
                 status = iterate(synchronizer, rank, t, compute, 0.01F).status();
               }
               const Status left = synchronizer.leave();
               // The error is final.
               EXPECT_EQ(left.code(), status.code()) << left.to_string();
             }
             judge(status, rank);
           },
           PeerKind::kProcesses, {victim});
}

TEST(TrainingDeathTest, IsAnErrorThatNamesTheVictimWhereAllAreNeeded) {
  for (const Case& test : all_cases()) {
    if (is_independent(test.options)) continue;
    train_until_death(test.options, 1, [&](const Status& status, int rank) {
      EXPECT_EQ(status.code(), Code::kPeerDead) << test.name << rank << status.to_string();
      EXPECT_EQ(status.peer(), Rank(1)) << test.name << rank << status.to_string();
    });
  }
}

TEST(TrainingDeathTest, StopsNobodyElseWhereWorkersAreIndependent) {
  for (const Case& test : all_cases()) {
    if (!is_independent(test.options)) continue;
    train_until_death(test.options, 1, [&](const Status& status, int rank) {
      EXPECT_TRUE(status.is_ok()) << test.name << rank << status.to_string();
    });
  }
}

TEST(TrainingDeathTest, OfAServerIsAnError) {
  for (const MethodKind kind : {MethodKind::kParameterServer, MethodKind::kAsyncParameterServer}) {
    MethodOptions options;
    options.kind = kind;
    options.count = 100;
    options.servers = 2;
    train_until_death(options, kWorkers, [&](const Status& status, int rank) {
      EXPECT_EQ(status.code(), Code::kPeerDead) << rank << status.to_string();
      EXPECT_EQ(status.peer(), Rank(kWorkers)) << rank << status.to_string();
    });
  }
}

// Calls in the wrong order return an error and do no harm. An expired wait names the peer.
TEST(SynchronizerTest, TellsMistakesAndNamesWhomItWaitsFor) {
  MethodOptions options;
  options.count = 10;
  std::atomic<bool> has_rank_0_ended{false};
  RunOptions run;
  run_ranks(run, [&](transport::Fabric& fabric) {
    auto made = Synchronizer::create(fabric, options, std::chrono::seconds(2));
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    Synchronizer& synchronizer = **made;
    EXPECT_EQ(synchronizer.finish(1, false).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(synchronizer.serve().code(), Code::kInvalidArgument);
    EXPECT_EQ(synchronizer.ready(4, 7).code(), Code::kOutOfRange);
    EXPECT_TRUE(synchronizer.begin(0).is_ok());
    EXPECT_EQ(synchronizer.begin(0).code(), Code::kInvalidArgument);
    if (fabric.rank() == Rank(1)) {
      // Never calls finish(), but stays alive.
      while (!has_rank_0_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    const Status late = synchronizer.finish(1, false).status();
    EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.to_string();
    EXPECT_EQ(late.peer(), Rank(1)) << late.to_string();
    EXPECT_EQ(synchronizer.begin(1).code(), Code::kDeadlineExceeded);
    has_rank_0_ended = true;
  });
}

}  // namespace
}  // namespace dunlin::testing
