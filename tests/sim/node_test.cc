// Nodes of the simulated network keep the contract of the Lane, complete what was posted, and there
// can be tens of thousands of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "tests/sim/nodes.h"

namespace dunlin::testing {
namespace {

using namespace std::chrono_literals;
using transport::Completion;
using transport::Lane;
using transport::LocalRegion;
using transport::NotifyId;
using transport::RemoteRegion;
using transport::sim::Actor;
using transport::sim::Jitter;
using transport::sim::Network;
using transport::sim::Node;
using transport::sim::Options;

// Each message fills the region with its number. A notification has to find that number, or a later
// one.
void expect_order(Options options) {
  Completion completion;
  World world(std::move(options));
  RemoteRegion& remote = world.remote(0, 1);
  constexpr std::uint64_t kMessages = 200;
  std::uint64_t sent = 0;
  std::uint64_t seen = 0;
  const auto words = [&](int rank) {
    return std::span(reinterpret_cast<std::uint64_t*>(world.region(rank).data()), 64);
  };
  const auto fill = [&] { std::fill(words(0).begin(), words(0).end(), sent + 1); };
  const auto post = [&] {
    if (sent == kMessages || (sent > 0 && !completion.is_done())) return;
    fill();
    completion.reset();
    // Half of the payload in an earlier put.
    Lane& lane = world.data(0, 1);
    Completion* const asked = &completion;
    while (lane.put(world.region(0).slice(0, 256).value(), remote.slice(0, 256).value(), nullptr)
               .is_busy())
      world.network().step();
    while (lane.put_notify(world.region(0).slice(256, 256).value(), remote.slice(256, 256).value(),
                           to_cell(0, sent + 1), asked)
               .is_busy())
      world.network().step();
    ++sent;
  };
  long steps = 0;
  while (seen < kMessages && ++steps < 1'000'000) {
    post();
    world.network().step();
    world.node(0).progress();
    const std::uint64_t sequence = world.node(1).board().sequence(NotifyId(0));
    ASSERT_GE(sequence, seen);
    seen = sequence;
    for (const std::uint64_t word : words(1)) ASSERT_GE(word, seen);
  }
  EXPECT_EQ(seen, kMessages);
}

TEST(SimNode, ANotificationComesAfterEarlierPutsOfItsLane) {
  expect_order(plain(2));
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Options jittery = plain(2);
    jittery.seed = seed;
    jittery.jitter = {Jitter::Kind::kUniform, 30us};
    expect_order(jittery);
    Options hostile = plain(2);
    hostile.seed = seed;
    hostile.queue_depth = 3;
    hostile.hostility.emplace();
    expect_order(hostile);
  }
}

// With jitter, too, a short message must not overtake a long one of its lane.
TEST(SimNode, NotificationsOfALaneComeInOrder) {
  Options options = plain(2);
  options.jitter = {Jitter::Kind::kExponential, 50us};
  World world(options);
  Watcher watcher(world.node(1));
  for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
    ASSERT_TRUE(world.send(0, 1, sequence % 7 == 0 ? 100'000 : 0, sequence).is_ok());
  }
  while (world.network().step()) {
    ASSERT_EQ(world.node(1).board().sequence(NotifyId(0)), watcher.seen);
  }
  EXPECT_EQ(watcher.seen, 100U);
  EXPECT_EQ(watcher.times.size(), 100U);
  EXPECT_TRUE(std::is_sorted(watcher.times.begin(), watcher.times.end()));
}

TEST(SimNode, ALostRankEndsWhatIsOnItsWayToIt) {
  Options options = plain(3);
  options.loss_notice = 500us;
  Completion to_victim, from_victim, elsewhere;  // outlive the lanes
  World world(options);
  Watcher survivor(world.node(0));
  world.network().lose_at(Rank(1), TimePoint() + 50us);
  ASSERT_TRUE(world.send(0, 1, 1'000'000, 1, &to_victim).is_ok());
  ASSERT_TRUE(world.send(1, 2, 1'000'000, 1, &from_victim).is_ok());
  ASSERT_TRUE(world.send(2, 0, 1'000'000, 1, &elsewhere).is_ok());
  while (!to_victim.is_done()) ASSERT_TRUE(world.network().step());
  EXPECT_EQ(world.now(), 550us);
  EXPECT_EQ(to_victim.status().code(), Code::kPeerDead);
  EXPECT_EQ(to_victim.status().peer(), Rank(1));
  world.network().run();
  world.node(2).progress();
  EXPECT_TRUE(elsewhere.is_done() && elsewhere.status().is_ok());
  EXPECT_EQ(world.node(2).board().sequence(NotifyId(0)), 0U);  // it died with the rank
  EXPECT_FALSE(from_victim.is_done());                         // the rank that posted it is gone
  EXPECT_EQ(world.send(0, 1, 10, 2).code(), Code::kPeerDead);
  EXPECT_EQ(world.node(1).board().sequence(NotifyId(0)), 0U);
  EXPECT_GE(survivor.turns, 2);
}

TEST(SimNode, ClosingALaneEndsWhatItStillOwes) {
  Completion landed, pending;
  World world(plain(2));
  ASSERT_TRUE(world.send(0, 1, 10, 1, &landed).is_ok());
  while (world.network().step()) continue;
  ASSERT_TRUE(world.send(0, 1, 1000, 2, &pending).is_ok());
  world.data(0, 1).close();
  EXPECT_TRUE(landed.is_done() && landed.status().is_ok());
  EXPECT_EQ(pending.status().code(), Code::kClosed);
  EXPECT_EQ(world.send(0, 1, 10, 3).code(), Code::kClosed);
  world.network().run();
  EXPECT_EQ(world.node(1).board().sequence(NotifyId(0)), 1U);
}

TEST(SimNode, WhatIsPutIntoAnUnregisteredRegionFails) {
  Completion completion;
  World world(plain(2));
  const auto memory = MemoryRegion::allocate(4096).value();
  auto region = world.node(1).register_memory(memory);
  const auto remote = world.node(0).import_region(Rank(1), *region).value();
  std::memset(world.region(0).data(), 1, 64);
  ASSERT_TRUE(world.data(0, 1)
                  .put_notify(world.region(0).slice(0, 64).value(), remote->slice(0, 64).value(),
                              to_cell(0, 1), &completion)
                  .is_ok());
  region.reset();
  world.network().run();
  world.node(0).progress();
  ASSERT_TRUE(completion.is_done());
  EXPECT_EQ(completion.status().code(), Code::kNotFound);
  EXPECT_EQ(memory->data()[0], std::byte{0});
  EXPECT_EQ(world.node(1).board().sequence(NotifyId(0)), 0U);
}

TEST(SimNode, OptionsThatCannotWorkAreRefused) {
  const auto code = [](const auto& change) {
    Options options = plain(4);
    change(options);
    return Network::create(options).status().code();
  };
  EXPECT_EQ(code([](Options&) {}), Code::kOk);
  EXPECT_EQ(code([](Options& o) { o.ranks = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](Options& o) { o.rack.bandwidth = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](Options& o) { o.spine.latency = -1ns; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](Options& o) { o.stragglers = {{Rank(4), 2}}; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](Options& o) { o.hostility.emplace().refusal = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](Options& o) { o.hostility.emplace().pieces = 0; }), Code::kInvalidArgument);
  const auto network = Network::create(plain(2)).value();
  const auto node = Node::create(*network, Rank(0), 1).value();
  EXPECT_EQ(Node::create(*network, Rank(0), 1).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(Node::create(*network, Rank(2), 1).status().code(), Code::kOutOfRange);
  EXPECT_EQ(node->link(Rank(2)).status().code(), Code::kOutOfRange);
}

// Passes a chunk of 64 MiB of phantom memory to the right, round after round.
class RingRank final : public Actor {
 public:
  static constexpr std::size_t kChunk = std::size_t{64} << 20;

  RingRank(Node& node, std::uint64_t rounds)
      : node_(node), rounds_(rounds), region_(node.allocate_phantom(kChunk).value()) {
    node.set_actor(this);
    node.wake_at(TimePoint());
  }
  void connect(RingRank& right) {
    lane_ = &node_.link(right.node_.rank()).value()->data();
    remote_ = node_.import_region(right.node_.rank(), *right.region_).value();
  }
  void advance() override {
    while (sent_ < rounds_ && node_.board().sequence(NotifyId(0)) >= sent_) {
      ++sent_;
      ASSERT_TRUE(lane_->put_notify(region_->whole(), remote_->whole(), to_cell(0, sent_), nullptr)
                      .is_ok());
    }
  }
  std::uint64_t received() { return node_.board().sequence(NotifyId(0)); }

 private:
  Node& node_;
  std::uint64_t rounds_;
  std::uint64_t sent_ = 0;
  std::unique_ptr<LocalRegion> region_;
  std::unique_ptr<RemoteRegion> remote_;
  Lane* lane_ = nullptr;
};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

TEST(SimNode, TenThousandNodesPassALargeChunkAroundInLittleMemory) {
  const std::size_t before = resident_bytes();
  constexpr int kNodes = 10'000;
  constexpr std::uint64_t kRounds = 20;
  const auto network = Network::create(plain(kNodes)).value();
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<RingRank>> ranks;
  for (int rank = 0; rank < kNodes; ++rank) {
    nodes.push_back(Node::create(*network, Rank(rank), 4).value());
    ranks.push_back(std::make_unique<RingRank>(*nodes.back(), kRounds));
  }
  for (std::size_t rank = 0; rank < kNodes; ++rank)
    ranks[rank]->connect(*ranks[(rank + 1) % kNodes]);
  network->run();
  for (const auto& rank : ranks) EXPECT_EQ(rank->received(), kRounds);
  const Duration step = 2us + Duration(std::llround(RingRank::kChunk / 10.0));
  EXPECT_EQ(network->now().time_since_epoch(), step * kRounds);
  const std::size_t used = resident_bytes() - before;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t kBound = 32 * 1024;  // includes the sanitizer's shadow memory
#else
  constexpr std::size_t kBound = 4096;
#endif
  EXPECT_LT(used, kNodes * kBound) << used / kNodes << " bytes a node";
  RecordProperty("bytes_per_node", static_cast<int>(used / kNodes));
  RecordProperty("events_per_second", static_cast<int>(network->statistics().events_per_second()));
}

}  // namespace
}  // namespace dunlin::testing
