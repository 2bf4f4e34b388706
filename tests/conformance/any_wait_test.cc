// What peers depend on advances in every wait of the library: here rank 1, or the master of the
// groups, waits in a barrier of the bootstrap and calls nothing of the object in question. The
// ranks have met before, since a rank looks for another one at the bootstrap, which serves one call
// of it at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "collectives/barrier/barrier.h"
#include "collectives/communicator/communicator.h"
#include "collectives/groups/group_average.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "collectives/partial/partial_all_reduce.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "collectives/straggler/straggler_ring.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Barrier;
using collective::Call;
using collective::Communicator;
using collective::DataType;
using collective::GroupAverage;
using collective::GroupAverageOptions;
using collective::GroupNotice;
using collective::GroupPolicy;
using collective::GroupService;
using collective::GroupServiceOptions;
using collective::GroupSource;
using collective::NeighborCall;
using collective::NeighborExchange;
using collective::PartialAllReduce;
using collective::PartialCall;
using collective::ReduceOptions;
using collective::StochasticReduce;
using collective::StragglerOptions;
using collective::StragglerRing;
using collective::SyncMode;
using transport::Fabric;

constexpr Duration kTimeout = std::chrono::seconds(60);

class AnyWaitTest : public ::testing::TestWithParam<PeerKind> {
 protected:
  void run(const RankBody& body) {
    run_ranks({.kind = GetParam(), .size = 2, .killed = {}, .configure = {}}, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Peers, AnyWaitTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

void meet(Fabric& fabric) {
  const Status met = fabric.bootstrap().barrier("met", 2 * kTimeout);
  ASSERT_TRUE(met.is_ok()) << met.to_string();
}

TEST_P(AnyWaitTest, CallsOfACommunicatorAdvance) {
  run([](Fabric& fabric) {
    const auto communicator = Communicator::create(fabric, {}).value();
    // Many parts, each of which needs both ranks.
    std::vector<float> values(2'000'000, 1.0F);
    Call call;
    call.input = values.data();
    call.output = values.data();
    call.count = values.size();
    const auto request = communicator->start(call);
    ASSERT_TRUE(request.is_ok()) << request.status().to_string();
    if (fabric.rank() == Rank(0)) {
      const Status status = communicator->wait(*request, kTimeout);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    meet(fabric);
    ASSERT_TRUE(communicator->wait(*request, kTimeout).is_ok());
    EXPECT_EQ(values.front(), 2.0F);
    EXPECT_EQ(values.back(), 2.0F);
    sync(fabric, "end");
  });
}

TEST_P(AnyWaitTest, NeighborExchangesAdvance) {
  run([](Fabric& fabric) {
    const auto exchange = NeighborExchange::create(fabric, {.slot_bytes = 8192}).value();
    const Rank peer(1 - fabric.rank().value());
    // Far more than the slots of a pair hold.
    const std::vector<float> input(500'000, static_cast<float>(fabric.rank().value()));
    std::vector<float> output(input.size());
    NeighborCall call;
    call.name = "model";
    call.input = input.data();
    call.output = output.data();
    call.count = input.size();
    call.type = DataType::kFloat32;
    call.self_weight = 0.5;
    call.sources = {{peer, 0.5}};
    call.destinations = {{peer, 1.0}};
    ASSERT_TRUE(exchange->run(call).is_ok());
    sync(fabric, "met");
    const auto request = exchange->start(call);
    ASSERT_TRUE(request.is_ok()) << request.status().to_string();
    if (fabric.rank() == Rank(0)) {
      const Status status = exchange->wait(*request, kTimeout);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    meet(fabric);
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(exchange->wait(*request, kTimeout).is_ok());
    }
    EXPECT_EQ(output.front(), 0.5F);
    EXPECT_EQ(output.back(), 0.5F);
    sync(fabric, "end");
  });
}

TEST_P(AnyWaitTest, PartialAllReducesAdvance) {
  run([](Fabric& fabric) {
    const auto partial = PartialAllReduce::create(fabric, {}).value();
    // Slices that are copied, each of which needs both ranks.
    std::vector<float> model(2'000'000, static_cast<float>(fabric.rank().value()));
    PartialCall call{.number = 1, .members = {Rank(0), Rank(1)}};
    call.input = call.output = model.data();
    call.count = 1;
    ASSERT_TRUE(partial->run(call).is_ok());
    sync(fabric, "met");
    call.number = 2;
    call.count = model.size();
    const auto request = partial->start(call).value();
    if (fabric.rank() == Rank(0)) {
      const Status status = partial->wait(request, kTimeout);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    meet(fabric);
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(partial->wait(request, kTimeout).is_ok());
    }
    EXPECT_EQ(model.front(), 0.5F);
    EXPECT_EQ(model.back(), 0.5F);
    sync(fabric, "end");
  });
}

// Rank 1 has aborted an operation, and waits elsewhere when rank 0 begins the next one. It has to
// acknowledge rank 0's abort, and to find other scratch memory.
TEST_P(AnyWaitTest, PartialAllReducesAdvanceAfterAFailure) {
  run([](Fabric& fabric) {
    const auto partial = PartialAllReduce::create(fabric, {}).value();
    std::vector<float> model(1000, static_cast<float>(fabric.rank().value()));
    PartialCall call{.number = 1, .members = {Rank(0), Rank(1)}};
    call.input = call.output = model.data();
    call.count = fabric.rank() == Rank(0) ? 1000 : 999;
    EXPECT_EQ(partial->run(call).code(), Code::kInvalidArgument);
    call.number = 2;
    call.count = 1000;
    const auto request = partial->start(call).value();
    if (fabric.rank() == Rank(0)) {
      const Status status = partial->wait(request, kTimeout);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    meet(fabric);
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(partial->wait(request, kTimeout).is_ok());
    }
    EXPECT_EQ(model.back(), 0.5F);
    sync(fabric, "end");
  });
}

// The rank that waits elsewhere is the master here.
TEST_P(AnyWaitTest, TheMasterOfGroupsAnswers) {
  run([](Fabric& fabric) {
    GroupServiceOptions options;
    options.groups.policy = GroupPolicy::kSmart;
    options.groups.layout = {.hosts = 1, .workers_per_host = 2};
    options.groups.group_size = 2;
    const auto service = GroupService::create(fabric, options).value();
    const auto await_notice = [&] {
      std::optional<GroupNotice> notice;
      EXPECT_TRUE(progress_until(fabric, [&] {
        EXPECT_TRUE(service->progress().is_ok());
        notice = service->poll();
        return notice.has_value();
      }));
      return notice;
    };
    // The ranks meet: rank 1 gets a group with rank 0.
    std::optional<GroupNotice> notice;
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(service->ask(1).is_ok());
      notice = await_notice();
      ASSERT_TRUE(notice.has_value());
    }
    sync(fabric, "met");
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(service->fail(notice->group.sequence).is_ok());
      notice = await_notice();
      ASSERT_TRUE(notice.has_value());
      EXPECT_EQ(notice->kind, GroupNotice::Kind::kBroken);
    }
    meet(fabric);
    sync(fabric, "end");
  });
}

TEST_P(AnyWaitTest, AveragesByGroupsAdvance) {
  run([](Fabric& fabric) {
    GroupAverageOptions options;
    options.count = 200'000;
    options.source = GroupSource::kStatic;
    options.groups.layout = {.hosts = 1, .workers_per_host = 2};
    options.groups.group_size = 2;
    const auto average = GroupAverage::create(fabric, options).value();
    std::ranges::fill(average->model(), static_cast<float>(fabric.rank().value()));
    // Under this schedule both ranks are in the group of some iterations.
    std::uint64_t iteration = 0;
    for (; iteration < 4; ++iteration) {
      const Status status = average->run(iteration);
      ASSERT_TRUE(status.is_ok()) << status.to_string();
    }
    EXPECT_GT(average->statistics().groups, 0u);
    sync(fabric, "met");
    for (; iteration < 8; ++iteration) {
      ASSERT_TRUE(average->start(iteration).is_ok());
      if (fabric.rank() == Rank(0)) {
        const Status status = average->wait(kTimeout);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
      }
      const Status met = fabric.bootstrap().barrier("average", 2 * kTimeout);
      ASSERT_TRUE(met.is_ok()) << met.to_string();
      if (fabric.rank() == Rank(1)) {
        ASSERT_TRUE(average->wait(kTimeout).is_ok());
      }
    }
    EXPECT_EQ(average->model().front(), 0.5F);
    EXPECT_EQ(average->model().back(), 0.5F);
    sync(fabric, "end");
  });
}

// Rank 1 has started `operation`, and waits elsewhere while rank 0 waits for it.
template <typename Operation>
void advance_elsewhere(Fabric& fabric, Operation& operation) {
  const auto wait = [&] {
    const Status status = fabric.wait([&] { return operation.test(); },
                                      [] { return std::vector<transport::Awaited>(); }, kTimeout);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  };
  ASSERT_TRUE(operation.start().is_ok());
  if (fabric.rank() == Rank(0)) wait();
  meet(fabric);
  if (fabric.rank() == Rank(1)) wait();
}

TEST_P(AnyWaitTest, BarriersAdvance) {
  run([](Fabric& fabric) {
    const auto barrier = Barrier::prepare(fabric, "b", {Rank(0), Rank(1)}).value();
    ASSERT_TRUE(barrier->connect().is_ok());
    ASSERT_TRUE(barrier->wait(kTimeout).is_ok());
    advance_elsewhere(fabric, *barrier);
    sync(fabric, "end");
  });
}

ReduceOptions reduce_options(const Fabric& fabric, SyncMode mode) {
  ReduceOptions options;
  options.membership.members = {Rank(0), Rank(1)};
  options.neighborhood.in = options.neighborhood.out = {Rank(1 - fabric.rank().value())};
  options.neighborhood.self_weight = 0.5;
  options.neighborhood.in_weights = {0.5};
  options.count = 100'000;
  options.mode = mode;
  return options;
}

TEST_P(AnyWaitTest, StochasticReducesAdvance) {
  for (const SyncMode mode : {SyncMode::kNotifyAck, SyncMode::kBsp}) {
    run([mode](Fabric& fabric) {
      const auto reduce =
          StochasticReduce<float>::prepare(fabric, reduce_options(fabric, mode)).value();
      ASSERT_TRUE(reduce->connect().is_ok());
      ASSERT_TRUE(reduce->reduce(kTimeout).is_ok());
      const auto own = static_cast<float>(fabric.rank().value());
      std::ranges::fill(reduce->model(), own);
      advance_elsewhere(fabric, *reduce);
      EXPECT_EQ(reduce->report().step, 2u);
      // Under BSP, the barrier may be over before the peer's model is here.
      const bool is_input_missing = mode == SyncMode::kBsp && reduce->report().inputs == 0;
      EXPECT_EQ(reduce->model().front(), is_input_missing ? own : 0.5F);
      EXPECT_EQ(reduce->model().back(), is_input_missing ? own : 0.5F);
      sync(fabric, "end");
    });
  }
}

// Rank 0's reduce has failed at its deadline, so that the model is its caller's. Nothing averages
// the model of rank 1 into it, which comes later.
TEST_P(AnyWaitTest, AFailedStochasticReduceDoesNotGoOn) {
  run([](Fabric& fabric) {
    const auto options = reduce_options(fabric, SyncMode::kNotifyAck);
    const auto reduce = StochasticReduce<float>::prepare(fabric, options).value();
    ASSERT_TRUE(reduce->connect().is_ok());
    std::ranges::fill(reduce->model(), static_cast<float>(fabric.rank().value()));
    if (fabric.rank() == Rank(0)) {
      const auto report = reduce->reduce(std::chrono::milliseconds(20));
      EXPECT_EQ(report.status().code(), Code::kDeadlineExceeded) << report.status().to_string();
    }
    meet(fabric);
    if (fabric.rank() == Rank(1)) {
      ASSERT_TRUE(reduce->reduce(kTimeout).is_ok());
    }
    sync(fabric, "reduced");
    for (int i = 0; i < 1000; ++i) fabric.progress();
    EXPECT_EQ(reduce->test().code(),
              fabric.rank() == Rank(0) ? Code::kDeadlineExceeded : Code::kOk);
    EXPECT_EQ(reduce->model().front(), fabric.rank() == Rank(0) ? 0.0F : 0.5F);
    EXPECT_EQ(reduce->model().back(), fabric.rank() == Rank(0) ? 0.0F : 0.5F);
    sync(fabric, "end");
  });
}

TEST_P(AnyWaitTest, StragglerRingsAdvance) {
  run([](Fabric& fabric) {
    StragglerOptions options;
    options.membership.members = {Rank(0), Rank(1)};
    options.count = 500'000;
    const auto ring = StragglerRing<float>::prepare(fabric, options).value();
    ASSERT_TRUE(ring->connect().is_ok());
    ASSERT_TRUE(ring->all_reduce(kTimeout).is_ok());
    std::ranges::fill(ring->data(), 1.0F);
    advance_elsewhere(fabric, *ring);
    EXPECT_EQ(ring->data().front(), 2.0F);
    EXPECT_EQ(ring->data().back(), 2.0F);
    sync(fabric, "end");
  });
}

}  // namespace
}  // namespace dunlin::testing
