// Averages of machines over every transport, against a reference that every rank computes. A
// machine is a group of ranks of this host here.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "collectives/neighbor/hierarchical.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::DataType;
using collective::HierarchicalExchange;
using collective::HierarchicalRequest;
using collective::NeighborCall;
using collective::NeighborExchange;
using transport::Fabric;

class HierarchicalTest : public OverPeers {};

// Rank r is in machine r % machines.
struct Site {
  Site(Fabric& fabric, int machine_count) : machines(machine_count) {
    collective::HierarchicalOptions options;
    options.machines.resize(static_cast<std::size_t>(machines));
    for (int rank = 0; rank < fabric.size(); ++rank) {
      options.machines[static_cast<std::size_t>(rank % machines)].emplace_back(rank);
    }
    exchange = NeighborExchange::create(fabric, {}).value();
    auto made = HierarchicalExchange::create(fabric, *exchange, std::move(options));
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    averages = std::move(made).value();
  }

  int machines;
  std::unique_ptr<NeighborExchange> exchange;
  std::unique_ptr<HierarchicalExchange> averages;
};

double value(int rank, int step, std::size_t element) {
  return std::sin(rank * 131 + step * 7 + static_cast<double>(element % 1009));
}

double mean(const Site& site, int size, int machine, int step, std::size_t element) {
  double sum = 0;
  const int ranks = size / site.machines;
  for (int rank = machine; rank < size; rank += site.machines) sum += value(rank, step, element);
  return sum / ranks;
}

// A ring of machines: the receivers' weights pull, and the senders' weights push.
NeighborCall ring_call(const Site& site) {
  NeighborCall call{.type = DataType::kFloat64, .self_weight = 0.75};
  const int self = site.averages->machine();
  if (site.machines > 1) {
    call.sources = {{Rank((self + site.machines - 1) % site.machines), 0.5}};
    call.destinations = {{Rank((self + 1) % site.machines), 0.25 * (self + 1)}};
  }
  return call;
}

void expect_ring(const Site& site, int size, int step, const std::vector<double>& output) {
  const int self = site.averages->machine();
  const int from = (self + site.machines - 1) % site.machines;
  for (std::size_t i = 0; i < output.size(); ++i) {
    double expected = 0.75 * mean(site, size, self, step, i);
    if (site.machines > 1) expected += 0.125 * (from + 1) * mean(site, size, from, step, i);
    ASSERT_NEAR(output[i], expected, 1e-14) << "step " << step << " element " << i;
  }
}

std::vector<double> values(int rank, int step, std::size_t count) {
  std::vector<double> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = value(rank, step, i);
  return made;
}

TEST_P(HierarchicalTest, AveragesOfMachines) {
  for (const auto& [size, machines] :
       std::vector<std::pair<int, int>>{{1, 1}, {3, 3}, {3, 1}, {4, 2}, {6, 2}}) {
    run(size, [machines = machines](Fabric& fabric) {
      const Site site(fabric, machines);
      int step = 0;
      // None, one, the whole on every rank, even parts, and uneven parts.
      for (const std::size_t count : {0u, 1u, 500u, 12'000u, 50'001u}) {
        for (const bool is_in_place : {false, true}) {
          std::vector<double> input = values(fabric.rank().value(), ++step, count);
          const std::vector<double> before = input;
          std::vector<double> output(is_in_place ? 0 : count);
          NeighborCall call = ring_call(site);
          call.input = input.data();
          call.output = is_in_place ? input.data() : output.data();
          call.count = count;
          const Status status = site.averages->run(call);
          ASSERT_TRUE(status.is_ok()) << status.to_string();
          expect_ring(site, fabric.size(), step, is_in_place ? input : output);
          if (!is_in_place) {
            EXPECT_EQ(input, before);
          }
        }
      }
    });
  }
}

TEST_P(HierarchicalTest, ManyAtOnceEndInAnyOrder) {
  run(4, [](Fabric& fabric) {
    const Site site(fabric, 2);
    constexpr int kCalls = 50;
    std::vector<std::vector<double>> data;
    std::vector<std::string> names;
    std::vector<HierarchicalRequest> requests;
    for (int i = 0; i < kCalls; ++i) {
      data.push_back(values(fabric.rank().value(), i, i % 3 == 0 ? 20'000u : 30u + i));
      names.push_back(fmt::format("layer {}", i));
    }
    for (std::size_t i = 0; i < kCalls; ++i) {
      NeighborCall call = ring_call(site);
      // Half of them have names of their own. The others are matched by their order.
      if (i % 2 == 0) call.name = names[i];
      call.input = call.output = data[i].data();
      call.count = data[i].size();
      auto request = site.averages->start(call);
      ASSERT_TRUE(request.is_ok()) << request.status().to_string();
      requests.push_back(*request);
    }
    // Each rank waits in another order.
    for (int i = 0; i < kCalls; ++i) {
      const int which = (i * 7 + fabric.rank().value() * 13) % kCalls;
      const auto index = static_cast<std::size_t>(which);
      const Status status = site.averages->wait(requests[index], std::chrono::seconds(20));
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      expect_ring(site, fabric.size(), which, data[index]);
      EXPECT_EQ(site.averages->test(requests[index]).code(), Code::kNotFound);
    }
  });
}

TEST_P(HierarchicalTest, BadArguments) {
  run(2, [](Fabric& fabric) {
    const Site site(fabric, 2);
    double x = 1;
    NeighborCall call = ring_call(site);
    call.input = call.output = &x;
    call.count = 1;
    call.sources = {{Rank(2), 1.0}};
    EXPECT_EQ(site.averages->start(call).status().code(), Code::kOutOfRange);
    call.sources = {{Rank(site.averages->machine()), 1.0}};
    EXPECT_EQ(site.averages->start(call).status().code(), Code::kInvalidArgument);
    const auto create = [&](std::vector<std::vector<Rank>> machines) {
      return HierarchicalExchange::create(fabric, *site.exchange,
                                          {.name = "bad", .machines = std::move(machines)})
          .status()
          .code();
    };
    EXPECT_EQ(create({{Rank(0)}}), Code::kInvalidArgument);
    EXPECT_EQ(create({{Rank(0), Rank(1)}, {}}), Code::kInvalidArgument);
    EXPECT_EQ(create({{Rank(0)}, {Rank(0)}}), Code::kInvalidArgument);
    EXPECT_EQ(create({{Rank(0)}, {Rank(2)}}), Code::kInvalidArgument);
    // It still works.
    NeighborCall good = ring_call(site);
    good.input = good.output = &x;
    good.count = 1;
    x = value(fabric.rank().value(), 0, 0);
    ASSERT_TRUE(site.averages->run(good).is_ok());
    expect_ring(site, 2, 0, {x});
  });
}

// Rank 3 is in machine 1, and has the same place there as rank 2 in machine 0.
TEST(HierarchicalDeath, EndsTheCallsOfItsMachineAndItsPlace) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 4, .killed = {3}, .configure = {}},
            [](Fabric& fabric) {
              const Site site(fabric, 2);
              std::vector<double> data(20'000, 1.0);
              NeighborCall call = ring_call(site);
              call.input = call.output = data.data();
              call.count = data.size();
              ASSERT_TRUE(site.averages->run(call).is_ok());
              // Until here, what rank 3 has sent may still be on its way.
              sync(fabric, "averaged");
              const int self = fabric.rank().value();
              if (self == 3) kill(getpid(), SIGKILL);
              auto request = site.averages->start(call);
              Status status = request.status();
              // Rank 0 may wait for rank 1, which gives its own call up: nothing but the deadline
              // ends that.
              const Duration timeout = std::chrono::seconds(self == 0 ? 2 : 60 * timeout_factor());
              if (status.is_ok()) status = site.averages->wait(*request, timeout);
              if (self == 0) {
                // Its peer lives, and learns of the death before or after their exchange.
                EXPECT_FALSE(status.is_ok());
                return;
              }
              EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
              EXPECT_EQ(status.peer(), Rank(3));
              EXPECT_EQ(site.averages->start(call).status().code(), Code::kPeerDead);
            });
}

// Rank 0 crosses with rank 1, which dies, while its next call waits for rank 2 of its machine. Both
// calls fail, and their memory is rank 0's again, though rank 2 makes the second call then.
TEST(HierarchicalDeath, GivesTheMemoryOfAllCallsBack) {
  run_ranks({.kind = PeerKind::kProcesses, .size = 4, .killed = {1}, .configure = {}},
            [](Fabric& fabric) {
              const Site site(fabric, 2);
              // UCX may abort where a peer dies while it connects.
              connect_all(fabric, "connected");
              std::vector<double> data(20'000, 1.0);
              NeighborCall call = ring_call(site);
              call.input = call.output = data.data();
              call.count = data.size();
              ASSERT_TRUE(site.averages->run(call).is_ok());
              sync(fabric, "averaged");
              const int self = fabric.rank().value();
              if (self == 1) kill(getpid(), SIGKILL);
              if (self == 3) return;
              Bootstrap& bootstrap = fabric.bootstrap();
              const Duration limit = std::chrono::seconds(60) * timeout_factor();
              std::vector<double> first(3, 1.0);
              NeighborCall crossing = call;
              crossing.name = "crossing";
              crossing.input = crossing.output = first.data();
              crossing.count = first.size();
              std::ranges::fill(data, 2.0 + self);
              call.name = "waiting";
              const auto begun = site.averages->start(crossing);
              if (self == 2) {
                const auto is_told = [&] {
                  site.averages->progress();
                  return bootstrap.lookup("rank 0 has the error", Duration::zero()).is_ok();
                };
                ASSERT_TRUE(progress_until(fabric, is_told));
                (void)site.averages->start(call);
                for (int i = 0; i < 1000; ++i) {
                  fabric.progress();
                  site.averages->progress();
                }
                ASSERT_TRUE(bootstrap.publish("rank 2 has made the call", {}).is_ok());
                ASSERT_TRUE(bootstrap.lookup("rank 0 has looked", limit).is_ok());
                return;
              }
              const auto waiting = site.averages->start(call);
              if (begun && waiting) {
                EXPECT_EQ(site.averages->wait(*begun, limit).code(), Code::kPeerDead);
                EXPECT_EQ(site.averages->wait(*waiting, limit).code(), Code::kPeerDead);
              }
              const std::vector<double> before = data;
              ASSERT_TRUE(bootstrap.publish("rank 0 has the error", {}).is_ok());
              ASSERT_TRUE(progress_until(fabric, [&] {
                return bootstrap.lookup("rank 2 has made the call", Duration::zero()).is_ok();
              }));
              for (int i = 0; i < 1000; ++i) fabric.progress();
              EXPECT_EQ(data, before);
              ASSERT_TRUE(bootstrap.publish("rank 0 has looked", {}).is_ok());
            });
}

INSTANTIATE_TEST_SUITE_P(Peers, HierarchicalTest,
                         ::testing::Values(PeerKind::kThreads, PeerKind::kProcesses),
                         [](const auto& peers) { return to_string(peers.param); });

}  // namespace
}  // namespace dunlin::testing
