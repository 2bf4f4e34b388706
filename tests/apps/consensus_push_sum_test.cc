// Tests push-sum over real windows, with ranks as threads and as processes.
#include "apps/consensus/push_sum.h"

#include <gtest/gtest.h>

#include "apps/consensus/program/job.h"
#include "collectives/graph/generators.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using namespace dunlin::consensus;

class PushSum : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(const char* spec, int size, const PushSumOptions& options) {
    run_ranks({.kind = GetParam(), .size = size, .killed = {}, .configure = {}},
              [&](transport::Fabric& fabric) {
                const auto communicator = collective::Communicator::create(fabric, {}).value();
                CommunicatorRanks ranks(*communicator);
                const auto graph = collective::make_graph(spec, size).value();
                const auto report = run_push_sum(fabric, *communicator, ranks, graph, options);
                ASSERT_TRUE(report.is_ok()) << report.status().to_string();
                EXPECT_LT(report->mass_error, 1e-12);
                EXPECT_LT(report->weight_error, 1e-12);
                EXPECT_LT(report->error_max, 1e-10);
                EXPECT_GE(report->rounds, static_cast<std::uint64_t>(size) * options.rounds);
                ASSERT_EQ(report->history.size(), options.rounds / options.record_every + 1);
                if (size > 1) {
                  EXPECT_GT(report->history.front().error_max, 0.1);
                  EXPECT_GT(report->deposits, 0U);
                }
                sync(fabric, "done");
              });
  }
};

TEST_P(PushSum, ReachesTheAverageOnDirectedGraphs) {
  run("ring", 3, {.rounds = 400, .longest_pause = std::chrono::microseconds(50)});
  run("exponential", 5, {.rounds = 400, .longest_pause = std::chrono::microseconds(50)});
}

TEST_P(PushSum, ReachesTheAverageOfIrregularGraphs) {
  run("star", 4, {.rounds = 400, .longest_pause = std::chrono::microseconds(100)});
}

TEST_P(PushSum, KeepsItsMassOverManyRoundsWithoutPauses) {
  run("exponential", 3, {.rounds = 20000, .longest_pause = {}, .record_every = 1000});
}

TEST_P(PushSum, OneRankHasTheAverage) {
  run("complete", 1, {.rounds = 10});
}

INSTANTIATE_TEST_SUITE_P(Peers, PushSum,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& one) { return to_string(one.param); });

}  // namespace
}  // namespace dunlin::testing
