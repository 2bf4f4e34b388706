// What peers depend on advances in every wait of the library: here rank 1, or the master of the
// groups, waits in a barrier of the bootstrap and calls nothing of the object in question. The
// ranks have met before, since a rank looks for another one at the bootstrap, which serves one call
// of it at a time.
#include <gtest/gtest.h>

#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/neighbor/neighbor_exchange.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::Call;
using collective::Communicator;
using collective::DataType;
using collective::NeighborCall;
using collective::NeighborExchange;
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

}  // namespace
}  // namespace dunlin::testing
