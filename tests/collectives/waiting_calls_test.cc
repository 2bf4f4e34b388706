// How often a rank waits for the coordinator while it makes and first uses an object: the number
// must not grow with the number of ranks that it talks to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "collectives/rma/mutex.h"
#include "tests/support/forwarding_bootstrap.h"
#include "transports/fabric.h"

namespace dunlin::collective {
namespace {

class CountingBootstrap final : public testing::ForwardingBootstrap {
 public:
  using ForwardingBootstrap::ForwardingBootstrap;

  Result<Bytes> lookup_from(Rank publisher, std::string_view key, Duration timeout) override {
    ++calls_;
    return whole().lookup_from(publisher, key, timeout);
  }
  Result<std::vector<Bytes>> lookup_each(std::string_view topic, std::span<const Rank> publishers,
                                         Duration timeout) override {
    ++calls_;
    return whole().lookup_each(topic, publishers, timeout);
  }
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) override {
    ++calls_;
    return whole().gather(name, group, record, timeout);
  }
  int calls() const { return calls_; }

 private:
  int calls_ = 0;
};

// Runs `body` for each rank of a job on this host, in a thread of its own. Returns the largest
// number of calls that one of them made.
template <typename Body>
int most_calls(int ranks, const Body& body) {
  InProcessJob job(ranks);
  Config config = Config::parse(Environment()).value();
  config.transports = {"shm"};
  const SteadyClock clock;
  std::vector<int> calls(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, whole = job.bootstrap(Rank(rank))]() mutable {
      CountingBootstrap bootstrap(*whole);
      auto fabric = transport::Fabric::create(bootstrap, config, clock);
      ASSERT_TRUE(fabric.is_ok()) << fabric.status().to_string();
      body(**fabric);
      ASSERT_TRUE(bootstrap.barrier("end", config.deadline).is_ok());
      calls[bootstrap.rank().index()] = bootstrap.calls();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::ranges::max(calls);
}

constexpr int kFew = 4;
constexpr int kMany = 13;

// All members map one another's memory, and use all of it in one call.
TEST(WaitingCalls, OfACommunicatorDoNotGrowWithItsMembers) {
  const auto body = [](transport::Fabric& fabric) {
    auto communicator = Communicator::create(fabric, {}).value();
    constexpr std::size_t kCount = 10'000;
    const auto memory = communicator->allocate(kCount * sizeof(float)).value();
    auto* const data = reinterpret_cast<float*>(memory.data());
    for (std::size_t i = 0; i < kCount; ++i) data[i] = 1;
    ASSERT_TRUE(communicator->is_all_mapped());
    const Status status =
        communicator->all_reduce(data, data, kCount, {DataType::kFloat32, ReduceOp::kSum});
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(data[kCount - 1], static_cast<float>(fabric.size()));
  };
  const int few = most_calls(kFew, body);
  EXPECT_GE(few, 1);
  EXPECT_EQ(most_calls(kMany, body), few);
}

TEST(WaitingCalls, OfAMutexDoNotGrowWithItsMembers) {
  const auto body = [](transport::Fabric& fabric) {
    MutexOptions options;
    options.membership = fabric.bootstrap().membership();
    options.owner_rank = Rank(1);
    auto mutex = DistributedMutex::prepare(fabric, options).value();
    ASSERT_TRUE(mutex->connect().is_ok());
    ASSERT_TRUE(mutex->lock(fabric.config().deadline).is_ok());
    ASSERT_TRUE(mutex->unlock(fabric.config().deadline).is_ok());
    ASSERT_TRUE(fabric.bootstrap().barrier("unlocked", fabric.config().deadline).is_ok());
  };
  const int few = most_calls(kFew, body);
  EXPECT_GE(few, 1);
  EXPECT_EQ(most_calls(kMany, body), few);
}

}  // namespace
}  // namespace dunlin::collective
