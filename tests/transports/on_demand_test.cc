// Transports that open on demand: when they are opened, and that no process listens on the network
// before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/listening_sockets.h"
#include "tests/support/ranks.h"
#include "transports/shm/transport.h"

namespace dunlin::testing {
namespace {

using transport::Fabric;
using transport::Link;
using transport::Transport;
using transport::TransportContext;
using transport::TransportFactory;

constexpr int kRanks = 2;

struct Opened {
  std::atomic<int> times[kRanks] = {0, 0};
  bool fails_at_1 = false;
};

// Shared memory under the name "late", which opens on demand.
class LateTransport final : public Transport {
 public:
  LateTransport(std::unique_ptr<Transport> shm, Rank self, Opened& opened)
      : shm_(std::move(shm)), self_(self), opened_(opened) {}
  std::string_view name() const override { return "late"; }
  bool opens_on_demand() const override { return true; }
  Status open() override {
    ++opened_.times[self_.index()];
    if (opened_.fails_at_1 && self_ == Rank(1)) return {Code::kUnavailable, "no port is left"};
    return Status::ok();
  }
  Bytes address() const override { return shm_->address(); }
  Status reach(Rank peer, std::span<const std::byte> address) override {
    return shm_->reach(peer, address);
  }
  Result<std::unique_ptr<Link>> connect(Rank peer, std::span<const std::byte> address) override {
    return shm_->connect(peer, address);
  }
  Result<std::unique_ptr<transport::TransportRegion>> register_memory(
      const std::shared_ptr<MemoryRegion>& memory) override {
    return shm_->register_memory(memory);
  }
  Status revoke(Rank peer) override { return shm_->revoke(peer); }
  std::size_t progress() override { return shm_->progress(); }
  bool arm() override { return shm_->arm(); }
  void disarm() override { shm_->disarm(); }
  const std::vector<int>& wait_fds() const override { return shm_->wait_fds(); }

 private:
  std::unique_ptr<Transport> shm_;
  Rank self_;
  Opened& opened_;
};

// Runs the body for each rank on a thread of its own, with the transports late and shm.
void run(Opened& opened, const RankBody& body) {
  InProcessJob job(kRanks);
  std::vector<std::thread> threads;
  for (int i = 0; i < kRanks; ++i) {
    threads.emplace_back([&, bootstrap = job.bootstrap(Rank(i))] {
      const std::vector<TransportFactory> factories = {
          {"late",
           [&](const TransportContext& context) -> Result<std::unique_ptr<Transport>> {
             auto shm = transport::shm::ShmTransport::create(context);
             if (!shm) return shm;
             return std::unique_ptr<Transport>(
                 std::make_unique<LateTransport>(std::move(shm).value(), context.self, opened));
           }},
          {"shm", transport::shm::ShmTransport::create}};
      Config config = Config::parse(Environment()).value();
      config.transports = {"late", "shm"};
      const SteadyClock clock;
      const auto fabric = Fabric::create(*bootstrap, config, clock, nullptr, factories).value();
      body(*fabric);
      sync(*fabric, "end");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OnDemandTest, OneRankAsksAndBothOpen) {
  Opened opened;
  run(opened, [&](Fabric& fabric) {
    if (fabric.rank() == Rank(0)) {
      EXPECT_EQ(opened.times[0] + opened.times[1], 0);
      ASSERT_TRUE(fabric.link(Rank(1)).is_ok());
      EXPECT_EQ(fabric.transport_of(Rank(1)), "late");
    }
    // Rank 1 makes progress in the barrier only.
    ASSERT_TRUE(fabric.bootstrap().barrier("asked", std::chrono::seconds(30)).is_ok());
    EXPECT_EQ(fabric.transport_of(Rank(0)), "");
  });
  EXPECT_EQ(opened.times[0], 1);
  EXPECT_EQ(opened.times[1], 1);
}

TEST(OnDemandTest, RanksThatAskEachOtherDoNotWaitForEachOther) {
  Opened opened;
  run(opened, [&](Fabric& fabric) {
    ASSERT_TRUE(fabric.link(Rank(1 - fabric.rank().value())).is_ok());
    ASSERT_TRUE(fabric.link(fabric.rank()).is_ok());
  });
  EXPECT_EQ(opened.times[0], 1);
  EXPECT_EQ(opened.times[1], 1);
}

TEST(OnDemandTest, APeerWithoutProgressIsNamedAndMayAnswerLater) {
  Opened opened;
  std::atomic<bool> is_there = false;
  std::atomic<bool> has_given_up = false;
  run(opened, [&](Fabric& fabric) {
    if (fabric.rank() == Rank(0)) {
      // Before, the wait may be for what rank 1 publishes when it makes its fabric.
      while (!is_there) std::this_thread::yield();
      const auto timely = fabric.link(Rank(1), std::chrono::milliseconds(10));
      EXPECT_EQ(timely.status().code(), Code::kDeadlineExceeded);
      EXPECT_EQ(timely.status().peer(), Rank(1));
      EXPECT_THAT(
          timely.status().to_string(),
          ::testing::HasSubstr("rank 1 has made no progress since it was asked to open late"));
      EXPECT_EQ(fabric.link(Rank(1), Duration::zero()).status().code(), Code::kDeadlineExceeded);
      has_given_up = true;
      EXPECT_TRUE(
          progress_until(fabric, [&] { return fabric.link(Rank(1), Duration::zero()).is_ok(); }));
    } else {
      is_there = true;
      while (!has_given_up) std::this_thread::yield();
    }
  });
  EXPECT_EQ(opened.times[1], 1);
}

TEST(OnDemandTest, AFailureAtThePeerLeavesTheNextTransport) {
  Opened opened;
  opened.fails_at_1 = true;
  run(opened, [&](Fabric& fabric) {
    if (fabric.rank() == Rank(0)) {
      ASSERT_TRUE(fabric.link(Rank(1)).is_ok());
      EXPECT_EQ(fabric.transport_of(Rank(1)), "shm");
      EXPECT_THAT(fabric.explain(Rank(1)),
                  ::testing::HasSubstr("late: it does not work at the peer"));
    } else {
      EXPECT_THAT(fabric.explain(Rank(0)), ::testing::HasSubstr("late: no port is left"));
      EXPECT_THAT(fabric.explain(Rank(1)), ::testing::HasSubstr("late: no port is left"));
    }
  });
  EXPECT_EQ(opened.times[1], 1) << "a transport that failed to open is opened again";
}

// Ranks that shared memory connects have no use for the network.
TEST(OnDemandTest, RanksOfOneHostDoNotListen) {
  RunOptions options;
  options.configure = [](Config& config) {
    config.transports = Config::parse(Environment()).value().transports;
  };
  const int before = count_listening_sockets();
  run_ranks(options, [&](Fabric& fabric) {
    Exposed memory(fabric, "exposed", 4096, 1);
    EXPECT_TRUE(complete(fabric, [&](transport::Completion* completion) {
                  return memory.data(1).put(memory.local().slice(0, 64).value(),
                                            memory.at(1).slice(0, 64).value(), completion);
                }).is_ok());
    EXPECT_EQ(fabric.transport_of(Rank(1)), "shm");
    EXPECT_EQ(count_listening_sockets(), before);
    sync(fabric, "counted");
  });
}

}  // namespace
}  // namespace dunlin::testing
