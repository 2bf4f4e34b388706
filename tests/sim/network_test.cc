// The simulated network itself: what a message costs, to the nanosecond, that the order of the Lane
// contract is kept, that a run can be repeated, and that tens of thousands of ranks fit.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "transports/sim/node.h"

namespace dunlin::testing {
namespace {

using namespace std::chrono_literals;
using transport::Completion;
using transport::Lane;
using transport::LocalRegion;
using transport::Notification;
using transport::NotifyId;
using transport::RemoteRegion;
using transport::Visibility;
using transport::sim::Actor;
using transport::sim::Jitter;
using transport::sim::Network;
using transport::sim::Node;
using transport::sim::Options;

Options plain(int ranks) {
  Options options;
  options.ranks = ranks;
  options.rack = {2us, 10e9};  // 10 bytes in a nanosecond
  options.host = {300ns, 20e9};
  options.spine = {5us, 5e9};
  return options;
}

Notification to_cell(std::uint32_t cell, std::uint64_t sequence) {
  Notification notification;
  notification.id = NotifyId(cell);
  notification.sequence = sequence;
  return notification;
}

// Notes when which sequence came to cell 0 .. `cells`.
class Watcher final : public Actor {
 public:
  explicit Watcher(Node& node) : node_(node) { node.set_actor(this); }

  void advance() override {
    ++turns;
    const std::uint64_t sequence = node_.board().sequence(NotifyId(0));
    if (sequence == seen) return;
    seen = sequence;
    times.push_back(node_.clock().now().time_since_epoch());
  }

  int turns = 0;
  std::uint64_t seen = 0;
  std::vector<Duration> times;

 private:
  Node& node_;
};

// Nodes with a region each, which all of them have imported on first use.
class World {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  explicit World(Options options, bool is_phantom = false)
      : network_(Network::create(std::move(options)).value()) {
    for (int rank = 0; rank < network_->options().ranks; ++rank) {
      nodes_.push_back(Node::create(*network_, Rank(rank), 8).value());
      regions_.push_back(
          is_phantom ? nodes_.back()->allocate_phantom(kBytes).value()
                     : nodes_.back()->register_memory(MemoryRegion::allocate(kBytes).value()));
    }
  }

  Network& network() { return *network_; }
  Node& node(int rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
  LocalRegion& region(int rank) { return *regions_[static_cast<std::size_t>(rank)]; }
  Lane& data(int from, int to) { return node(from).link(Rank(to)).value()->data(); }
  Lane& control(int from, int to) { return node(from).link(Rank(to)).value()->control(); }
  RemoteRegion& remote(int from, int to) {
    remotes_.push_back(node(from).import_region(Rank(to), region(to)).value());
    return *remotes_.back();
  }
  // From the beginning of one's region to that of the other's, with a notification to cell 0.
  Status send(int from, int to, std::size_t size, std::uint64_t sequence,
              Completion* completion = nullptr) {
    return data(from, to).put_notify(region(from).slice(0, size).value(),
                                     remote(from, to).slice(0, size).value(), to_cell(0, sequence),
                                     completion);
  }
  Duration now() const { return network_->now().time_since_epoch(); }

 private:
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<LocalRegion>> regions_;
  std::vector<std::unique_ptr<RemoteRegion>> remotes_;
};

// When the last byte of `size` is there, sent at time 0 from rank 0 to `to`.
Duration time_of(const Options& options, int to, std::size_t size) {
  World world(options);
  EXPECT_TRUE(world.send(0, to, size, 1).is_ok());
  Watcher watcher(world.node(to));
  world.network().run();
  EXPECT_EQ(watcher.times.size(), 1U);
  return watcher.times.empty() ? Duration(-1) : watcher.times[0];
}

TEST(SimNetwork, AMessageTakesLatencyAndItsBytes) {
  EXPECT_EQ(time_of(plain(2), 1, 0), 2us);
  EXPECT_EQ(time_of(plain(2), 1, 4), 2us);  // less than half a nanosecond
  EXPECT_EQ(time_of(plain(2), 1, 10), 2us + 1ns);
  EXPECT_EQ(time_of(plain(2), 1, 1'000'000), 2us + 100us);
  Options options = plain(2);
  options.overhead = 150ns;
  EXPECT_EQ(time_of(options, 1, 1000), 150ns + 2us + 100ns);
  options.rack.bandwidth = 0;
  EXPECT_EQ(time_of(options, 1, 1'000'000), 150ns + 2us);
}

TEST(SimNetwork, EachRouteHasItsOwnLink) {
  Options options = plain(8);
  options.ranks_per_host = 2;
  options.hosts_per_rack = 2;
  EXPECT_EQ(time_of(options, 0, 1000), 300ns + 50ns);  // to itself
  EXPECT_EQ(time_of(options, 1, 1000), 300ns + 50ns);
  EXPECT_EQ(time_of(options, 2, 1000), 2us + 100ns);
  EXPECT_EQ(time_of(options, 3, 1000), 2us + 100ns);
  EXPECT_EQ(time_of(options, 4, 1000), 5us + 200ns);
}

// Messages of 1 MB (100 us) at the same time: when each has come.
std::vector<Duration> times_of(const Options& options, std::vector<std::pair<int, int>> pairs) {
  World world(options);
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (const auto& [from, to] : pairs) {
    EXPECT_TRUE(world.send(from, to, 1'000'000, static_cast<std::uint64_t>(from) + 1).is_ok());
  }
  std::vector<Duration> times;
  std::vector<int> receivers;
  for (const auto& [from, to] : pairs) receivers.push_back(to);
  std::sort(receivers.begin(), receivers.end());
  receivers.erase(std::unique(receivers.begin(), receivers.end()), receivers.end());
  for (const int to : receivers) watchers.push_back(std::make_unique<Watcher>(world.node(to)));
  world.network().run();
  for (const auto& watcher : watchers) {
    times.insert(times.end(), watcher->times.begin(), watcher->times.end());
  }
  std::sort(times.begin(), times.end());
  return times;
}

using Times = std::vector<Duration>;

TEST(SimNetwork, SendersToOneReceiverShareItsIngress) {
  EXPECT_EQ(times_of(plain(3), {{0, 2}, {1, 2}}), (Times{102us, 202us}));
}

TEST(SimNetwork, OneSendersMessagesShareItsEgress) {
  EXPECT_EQ(times_of(plain(3), {{0, 1}, {0, 2}}), (Times{102us, 202us}));
  // Other pairs are independent.
  EXPECT_EQ(times_of(plain(4), {{0, 1}, {2, 3}, {1, 0}}), (Times{102us, 102us, 102us}));
}

TEST(SimNetwork, RanksOfAHostMayShareANic) {
  Options options = plain(4);
  options.ranks_per_host = 2;
  EXPECT_EQ(times_of(options, {{0, 2}, {1, 3}}), (Times{102us, 102us}));
  options.shares_nic = true;
  EXPECT_EQ(times_of(options, {{0, 2}, {1, 3}}), (Times{102us, 202us}));
}

TEST(SimNetwork, AnOversubscribedRackLimitsItsHostsTogether) {
  Options options = plain(8);
  options.hosts_per_rack = 4;
  EXPECT_EQ(times_of(options, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}),
            (Times{205us, 205us, 205us, 205us}));
  // Four NICs of 5 GB/s, an uplink of 10: each message keeps it for 100 us, and goes on at once.
  options.oversubscription = 2;
  EXPECT_EQ(times_of(options, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}),
            (Times{205us, 305us, 405us, 505us}));
  // An uplink slower than one NIC: 2.5 GB/s.
  options.oversubscription = 8;
  EXPECT_EQ(times_of(options, {{0, 4}}), (Times{405us}));
  // Within the rack nobody notices.
  EXPECT_EQ(times_of(options, {{0, 1}}), (Times{102us}));
}

TEST(SimNetwork, ControlDoesNotQueueBehindData) {
  World world(plain(2));
  ASSERT_TRUE(world.send(0, 1, 1'000'000, 1).is_ok());
  ASSERT_TRUE(world.control(0, 1).notify(to_cell(1, 7), nullptr).is_ok());
  while (world.node(1).board().sequence(NotifyId(1)) == 0) ASSERT_TRUE(world.network().step());
  EXPECT_EQ(world.now(), 2us);
  // On the data lane it does.
  ASSERT_TRUE(world.data(0, 1).notify(to_cell(1, 8), nullptr).is_ok());
  world.network().run();
  EXPECT_EQ(world.node(1).board().sequence(NotifyId(1)), 8U);
  EXPECT_EQ(world.now(), 102us);
}

TEST(SimNetwork, CompletionsAndFlushesSayWhatTheyPromise) {
  World world(plain(2));
  Completion put, local, remote;
  ASSERT_TRUE(world.send(0, 1, 1'000'000, 1, &put).is_ok());
  ASSERT_TRUE(world.data(0, 1).flush(Visibility::kLocal, &local).is_ok());
  ASSERT_TRUE(world.data(0, 1).flush(Visibility::kRemote, &remote).is_ok());
  const auto when_done = [&](const Completion& completion) {
    while (!completion.is_done() && world.network().step()) world.node(0).progress();
    EXPECT_TRUE(completion.is_done() && completion.status().is_ok());
    return world.now();
  };
  EXPECT_EQ(when_done(put), 102us);
  EXPECT_EQ(when_done(local), 102us);
  EXPECT_EQ(when_done(remote), 104us);
  // With nothing before it.
  local.reset();
  ASSERT_TRUE(world.data(0, 1).flush(Visibility::kLocal, &local).is_ok());
  EXPECT_EQ(when_done(local), 104us);
}

TEST(SimNetwork, TheQueueDepthIsKeptAndItsOwnerHearsOfRoom) {
  Options options = plain(2);
  options.queue_depth = 2;
  World world(options);
  Watcher sender(world.node(0));
  EXPECT_TRUE(world.send(0, 1, 1000, 1).is_ok());
  EXPECT_TRUE(world.send(0, 1, 1000, 2).is_ok());
  EXPECT_TRUE(world.send(0, 1, 1000, 3).is_busy());
  EXPECT_EQ(sender.turns, 0);
  world.network().run();
  EXPECT_EQ(sender.turns, 1);  // for the room, not for each of them
  EXPECT_TRUE(world.send(0, 1, 1000, 3).is_ok());
  EXPECT_EQ(world.network().statistics().refusals, 1U);
}

TEST(SimNetwork, ComputingTakesTimeDuringWhichARankHasNoTurn) {
  Options options = plain(2);
  options.stragglers = {{Rank(1), 2.5}};
  World world(options);
  Watcher watcher(world.node(1));
  EXPECT_EQ(world.node(0).compute(100us).time_since_epoch(), 100us);
  EXPECT_EQ(world.node(1).compute(100us).time_since_epoch(), 250us);
  ASSERT_TRUE(world.send(0, 1, 1000, 1).is_ok());
  world.network().run();
  EXPECT_EQ(watcher.times, (Times{250us}));
  EXPECT_EQ(watcher.turns, 1);
}

// Ranks that send one another messages of all sizes for a while, whatever happens.
class Chatter final : public Actor {
 public:
  Chatter(World& world, int rank)
      : world_(world), rank_(rank), random_(static_cast<unsigned>(rank)) {
    world.node(rank).set_actor(this);
    world.node(rank).wake_at(TimePoint());
  }
  void advance() override {
    if (turns_++ == 40) world_.node(rank_).set_actor(nullptr);
    const int ranks = world_.network().options().ranks;
    const int to = random_.number(0, ranks - 1);
    const auto size = static_cast<std::size_t>(random_.number(0, 50'000));
    (void)world_.send(rank_, to, size, ++sent_);
    if (random_.chance(0.3)) world_.node(rank_).compute(5us);
    world_.node(rank_).wake_at(world_.network().now() + 3us);
  }

 private:
  World& world_;
  int rank_;
  int turns_ = 0;
  std::uint64_t sent_ = 0;
  transport::sim::Random random_;
};

struct Trace {
  std::uint64_t hash;
  std::uint64_t events;
  Duration end;
  bool operator==(const Trace&) const = default;
};

Trace chat(Options options, bool is_phantom = false) {
  World world(std::move(options), is_phantom);
  std::vector<std::unique_ptr<Chatter>> ranks;
  for (int rank = 0; rank < world.network().options().ranks; ++rank)
    ranks.push_back(std::make_unique<Chatter>(world, rank));
  world.network().run(1'000'000);
  EXPECT_EQ(world.network().events_in_flight(), 0U);
  return {world.network().trace_hash(), world.network().statistics().events, world.now()};
}

TEST(SimNetwork, TheSameSeedGivesTheSameRun) {
  Options jittery = plain(6);
  jittery.jitter = {Jitter::Kind::kExponential, 2us};
  Options hostile = plain(6);
  hostile.hostility.emplace();
  for (const Options& options : {jittery, hostile}) {
    EXPECT_EQ(chat(options), chat(options));
    Options other = options;
    other.seed = 2;
    EXPECT_NE(chat(options).hash, chat(other).hash);
  }
}

TEST(SimNetwork, PhantomMemoryTakesAsLongAsRealMemory) {
  Options hostile = plain(5);
  hostile.hostility.emplace();
  for (const Options& options : {plain(5), hostile})
    EXPECT_EQ(chat(options, false), chat(options, true));
}

// Each message fills the region with its number; the notification has to show it, or a later one.
void expect_order(Options options) {
  World world(std::move(options));
  RemoteRegion& remote = world.remote(0, 1);
  constexpr std::uint64_t kMessages = 200;
  std::uint64_t sent = 0;
  std::uint64_t seen = 0;
  Completion completion;
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
      ASSERT_TRUE(world.network().step());
    while (lane.put_notify(world.region(0).slice(256, 256).value(), remote.slice(256, 256).value(),
                           to_cell(0, sent + 1), asked)
               .is_busy())
      ASSERT_TRUE(world.network().step());
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

TEST(SimNetwork, ANotificationComesAfterEarlierPutsOfItsLane) {
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

// Under jitter a short message must not overtake a long one of its lane either.
TEST(SimNetwork, NotificationsOfALaneComeInOrder) {
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

TEST(SimNetwork, ALostRankEndsWhatIsOnItsWayToIt) {
  Options options = plain(3);
  options.loss_notice = 500us;
  World world(options);
  Watcher survivor(world.node(0));
  Completion to_victim, from_victim, elsewhere;
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
  EXPECT_EQ(world.send(0, 1, 10, 2).code(), Code::kPeerDead);
  EXPECT_EQ(world.node(1).board().sequence(NotifyId(0)), 0U);
  EXPECT_GE(survivor.turns, 2);
}

TEST(SimNetwork, ClosingALaneEndsWhatItStillOwes) {
  World world(plain(2));
  Completion landed, pending;
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

TEST(SimNetwork, WhatIsPutIntoAnUnregisteredRegionFails) {
  World world(plain(2));
  const auto memory = MemoryRegion::allocate(4096).value();
  auto region = world.node(1).register_memory(memory);
  const auto remote = world.node(0).import_region(Rank(1), *region).value();
  std::memset(world.region(0).data(), 1, 64);
  Completion completion;
  ASSERT_TRUE(
      world.data(0, 1)
          .put(world.region(0).slice(0, 64).value(), remote->slice(0, 64).value(), &completion)
          .is_ok());
  region.reset();
  world.network().run();
  world.node(0).progress();
  ASSERT_TRUE(completion.is_done());
  EXPECT_EQ(completion.status().code(), Code::kNotFound);
  EXPECT_EQ(memory->data()[0], std::byte{0});
}

TEST(SimNetwork, OptionsThatCannotWorkAreRefused) {
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

// Passes on to the right, round after round, a chunk of 64 MiB of phantom memory.
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

TEST(SimNetwork, TenThousandNodesPassALargeChunkAroundInLittleMemory) {
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
  // Sanitizers keep some around each allocation.
  EXPECT_LT(used, std::size_t{kNodes} * 4096) << used / kNodes << " bytes a node";
  RecordProperty("bytes_per_node", static_cast<int>(used / kNodes));
  RecordProperty("events_per_second", static_cast<int>(network->statistics().events_per_second()));
}

}  // namespace
}  // namespace dunlin::testing
