// The times of the simulated network, to the nanosecond, and the repeatability of a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/sim/nodes.h"

namespace dunlin::testing {
namespace {

using namespace std::chrono_literals;
using transport::Completion;
using transport::NotifyId;
using transport::Visibility;
using transport::sim::Actor;
using transport::sim::Jitter;
using transport::sim::Options;

// When the last of `size` bytes arrives that rank 0 sends to `to` at time 0.
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

// When each of several messages of 1 MB (100 us), sent at the same time, arrives.
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
  // Four NICs of 5 GB/s and an uplink of 10 GB/s: each message takes the uplink for 100 us.
  options.oversubscription = 2;
  EXPECT_EQ(times_of(options, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}),
            (Times{205us, 305us, 405us, 505us}));
  // An uplink slower than one NIC: 2.5 GB/s.
  options.oversubscription = 8;
  EXPECT_EQ(times_of(options, {{0, 4}}), (Times{405us}));
  // Traffic within the rack is not affected.
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
  Completion put, local, remote;
  World world(plain(2));
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
  // A flush with nothing before it completes at once.
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

// Ranks that send one another messages of all sizes for a while.
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

}  // namespace
}  // namespace dunlin::testing
