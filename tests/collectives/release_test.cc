// What collectives publish is released when they are destroyed, so that a program can make and
// destroy any number of them.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/barrier/barrier.h"
#include "collectives/communicator/communicator.h"
#include "collectives/graph/generators.h"
#include "collectives/rma/mutex.h"
#include "collectives/rma/neighbor_window.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "runtime/bootstrap/bootstrap.h"
#include "tests/support/forwarding_bootstrap.h"
#include "transports/fabric.h"
#include "transports/sim/network.h"

namespace dunlin::collective {
namespace {

constexpr int kRanks = 4;

// Remembers what a rank has published, and contributed to.
class RememberingBootstrap final : public testing::ForwardingBootstrap {
 public:
  explicit RememberingBootstrap(std::unique_ptr<Bootstrap> whole)
      : ForwardingBootstrap(*whole), owned_(std::move(whole)) {}

  Status publish(std::string_view key, std::span<const std::byte> value) override {
    keys_.emplace(key);
    return whole().publish(key, value);
  }
  Status post(std::string_view key, std::span<const std::byte> value) override {
    keys_.emplace(key);
    return whole().post(key, value);
  }
  Result<Bytes> gather(std::string_view name, std::span<const Rank> group,
                       std::span<const std::byte> record, Duration timeout) override {
    gathers_.emplace(name);
    return whole().gather(name, group, record, timeout);
  }
  Status contribute(std::string_view name, std::span<const Rank> group,
                    std::span<const std::byte> record) override {
    gathers_.emplace(name);
    return whole().contribute(name, group, record);
  }
  // What was published and contributed to since the last call.
  std::pair<std::set<std::string>, std::set<std::string>> take() {
    return {std::exchange(keys_, {}), std::exchange(gathers_, {})};
  }

 private:
  std::unique_ptr<Bootstrap> owned_;
  std::set<std::string> keys_;
  std::set<std::string> gathers_;
};

class Releasing : public ::testing::Test {
 protected:
  Releasing() {
    config_.transports = {"sim"};
    for (int rank = 0; rank < kRanks; ++rank) {
      bootstraps_.push_back(std::make_unique<RememberingBootstrap>(job_.bootstrap(Rank(rank))));
      fabrics_.push_back(transport::Fabric::create(*bootstraps_.back(), config_, clock_, nullptr,
                                                   {network_->factory()})
                             .value());
    }
    for (const auto& bootstrap : bootstraps_) (void)bootstrap->take();
  }

  // Makes an object on all ranks, and destroys it, rank by rank.
  template <typename Prepare>
  void make_and_destroy(Prepare&& prepare) {
    auto objects = prepare_all(prepare);
    for (const auto& object : objects) ASSERT_TRUE(object->connect().is_ok());
  }
  template <typename Prepare>
  auto prepare_all(Prepare&& prepare) {
    std::vector<std::decay_t<decltype(prepare(*fabrics_[0]).value())>> objects;
    for (const auto& fabric : fabrics_) objects.push_back(prepare(*fabric).value());
    return objects;
  }
  // Expects that nothing is left of what was published, and at least `published` things were.
  void expect_nothing_left(std::size_t published) {
    std::size_t count = 0;
    for (const auto& bootstrap : bootstraps_) {
      const auto [keys, gathers] = bootstrap->take();
      count += keys.size() + gathers.size();
      for (const std::string& key : keys) {
        EXPECT_TRUE(bootstrap->publish(key, Bytes(1)).is_ok()) << key;
        bootstrap->release(key, 1);
      }
      for (const std::string& name : gathers) {
        // Another one of this name would refuse records of this size.
        const auto gathered = bootstrap->gather(name, {}, Bytes(999), Duration::zero());
        EXPECT_EQ(gathered.status().code(), Code::kDeadlineExceeded) << name;
        bootstrap->release(name, 1);
      }
      (void)bootstrap->take();
    }
    EXPECT_GE(count, published);
  }
  Neighborhood neighborhood(Rank rank) const {
    return neighborhood_of(make_graph("ring", kRanks).value(), Weighting::kUniform,
                           membership().members, rank)
        .value();
  }
  Membership membership() const { return bootstraps_[0]->membership(); }

  std::unique_ptr<transport::sim::Network> network_ = transport::sim::Network::create([] {
                                                        transport::sim::Options options;
                                                        options.ranks = kRanks;
                                                        return options;
                                                      }())
                                                          .value();
  InProcessJob job_{kRanks};
  ManualClock clock_;
  Config config_ = Config::parse(Environment()).value();
  std::vector<std::unique_ptr<RememberingBootstrap>> bootstraps_;
  std::vector<std::unique_ptr<transport::Fabric>> fabrics_;
};

TEST_F(Releasing, Communicators) {
  make_and_destroy([](transport::Fabric& fabric) { return Communicator::prepare(fabric, {}); });
  expect_nothing_left(kRanks * 3);
}

TEST_F(Releasing, MemoryThatAllMembersHaveFreed) {
  const auto all =
      prepare_all([](transport::Fabric& fabric) { return Communicator::prepare(fabric, {}); });
  for (const auto& each : all) ASSERT_TRUE(each->connect().is_ok());
  for (const auto& bootstrap : bootstraps_) (void)bootstrap->take();
  std::vector<std::span<std::byte>> memory;
  for (const auto& each : all) memory.push_back(each->allocate(100).value());
  const std::string key = Bootstrap::key_of("communicator/world/window 1", Rank(0));
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(bootstraps_[0]->lookup(key, Duration::zero()).is_ok()) << "before rank " << rank;
    ASSERT_TRUE(all[rank]->free(memory[rank]).is_ok());
  }
  expect_nothing_left(kRanks);
}

TEST_F(Releasing, Barriers) {
  make_and_destroy([this](transport::Fabric& fabric) {
    return Barrier::prepare(fabric, "b", membership().members);
  });
  expect_nothing_left(kRanks);
}

TEST_F(Releasing, Windows) {
  make_and_destroy([this](transport::Fabric& fabric) {
    WindowOptions options;
    options.neighborhood = neighborhood(fabric.rank());
    options.count = 10;
    options.is_readable = true;
    return NeighborWindow<float>::prepare(fabric, options, {});
  });
  expect_nothing_left(kRanks * 2);
}

TEST_F(Releasing, Mutexes) {
  make_and_destroy([this](transport::Fabric& fabric) {
    return DistributedMutex::prepare(fabric, {"m", membership(), Rank(1)});
  });
  expect_nothing_left(kRanks);
}

TEST_F(Releasing, StochasticReduces) {
  make_and_destroy([this](transport::Fabric& fabric) {
    ReduceOptions options;
    options.membership = membership();
    options.neighborhood = neighborhood(fabric.rank());
    options.count = 10;
    return StochasticReduce<float>::prepare(fabric, options);
  });
  expect_nothing_left(kRanks);
}

}  // namespace
}  // namespace dunlin::collective
