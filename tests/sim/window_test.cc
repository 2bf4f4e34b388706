// Neighbor windows, stepped in virtual time on the hostile network, over many seeds: deposits have
// the effect that they would have one by one, and none is lost or counted twice. A failure prints
// its seed; run it alone with
// --gtest_filter=*/SEED.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "collectives/graph/generators.h"
#include "collectives/rma/neighbor_window.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::Graph;
using collective::NeighborWindow;
using collective::WeightedPeer;
using collective::Weighting;
using collective::WindowOptions;
using Windows = std::vector<std::unique_ptr<NeighborWindow<double>>>;

constexpr std::size_t kCount = 37;
const char* const kSpecs[] = {"complete", "ring", "root-expander", "star", "exponential", "chain"};

double initial(int rank, std::size_t element) {
  return std::cos(static_cast<double>(rank * 31) + static_cast<double>(element)) + 1.5;
}

Windows make_windows(HostileWorld& world, const Graph& graph, std::uint32_t depth,
                     bool is_readable = false) {
  Windows windows;
  std::vector<double> tensor(kCount);
  for (int rank = 0; rank < world.size(); ++rank) {
    WindowOptions options;
    options.neighborhood = collective::neighborhood_of(graph, Weighting::kUniform,
                                                       everybody(world.size()).members, Rank(rank))
                               .value();
    options.count = kCount;
    options.is_zeroed = true;
    options.depth = depth;
    options.is_readable = is_readable;
    for (std::size_t i = 0; i < kCount; ++i) tensor[i] = initial(rank, i);
    windows.push_back(NeighborWindow<double>::prepare(world.fabric(rank), options, tensor).value());
  }
  for (auto& window : windows) EXPECT_TRUE(window->connect().is_ok());
  return windows;
}

std::vector<Rank> out_neighbors(const Graph& graph, int rank) {
  std::vector<Rank> ranks;
  for (const int peer : graph.out_neighbors(rank)) ranks.emplace_back(peer);
  return ranks;
}

std::vector<Rank> in_neighbors(const Graph& graph, int rank) {
  std::vector<Rank> ranks;
  for (const int peer : graph.in_neighbors(rank)) ranks.emplace_back(peer);
  return ranks;
}

// The weights of a push-sum step: equal shares for these peers and for self.
std::vector<WeightedPeer> shares(const std::vector<Rank>& peers) {
  std::vector<WeightedPeer> weights;
  for (const Rank peer : peers)
    weights.push_back({peer, 1.0 / static_cast<double>(peers.size() + 1)});
  return weights;
}

class WindowChaosTest : public ::testing::TestWithParam<std::uint64_t> {};

// Push-sum with ranks of very different speeds.
TEST_P(WindowChaosTest, MassIsConserved) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 6));
  const Graph graph =
      collective::make_graph(kSpecs[seed % std::size(kSpecs)], world.size()).value();
  Windows windows = make_windows(world, graph, 1 + static_cast<std::uint32_t>(seed % 3));
  auto& random = world.random();
  constexpr int kSteps = 60;
  std::vector<int> steps(windows.size());
  const bool is_finished = world.run([&](int rank) {
    const auto self = static_cast<std::size_t>(rank);
    auto& window = *windows[self];
    if (rank % 3 == 1 && random() % 16 != 0) return false;  // computes, and calls nothing
    if (steps[self] == kSteps) {
      const Status status = window.flush();
      EXPECT_FALSE(status.is_error()) << status.to_string();
      // Once all are done, everything is in tensors and buffers.
      return status.is_ok() &&
             std::all_of(steps.begin(), steps.end(), [=](int count) { return count == kSteps; });
    }
    if (random() % 3 == 0) {
      EXPECT_TRUE(window.progress().is_ok());
    } else if (random() % 2 == 0) {
      std::vector<Rank> peers = out_neighbors(graph, rank);
      std::erase_if(peers, [&](Rank) { return random() % 4 == 0; });
      const auto weights = shares(peers);
      EXPECT_TRUE(window.accumulate(weights, 1.0 / static_cast<double>(peers.size() + 1)));
      ++steps[self];
    } else {
      EXPECT_TRUE(window.update_then_collect());
    }
    return false;
  });
  ASSERT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
  std::array<double, kCount> sums{};
  std::array<double, kCount> expected{};
  double p = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    auto& window = *windows[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(window.update_then_collect());
    p += window.p();
    for (std::size_t i = 0; i < kCount; ++i) {
      sums[i] += window.self()[i];
      expected[i] += initial(rank, i);
    }
  }
  EXPECT_NEAR(p / world.size(), 1, 1e-12) << "seed " << seed;
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_NEAR(sums[i] / expected[i], 1, 1e-12) << "seed " << seed << " element " << i;
}

// At any moment a buffer has the value that the deposits so far give one by one: puts and
// accumulates in random order, with resets between. The values are whole numbers, so that sums are
// exact.
TEST_P(WindowChaosTest, MergedDepositsAreThoseOneByOne) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2);
  const Graph graph = collective::make_graph("complete", 2).value();
  Windows windows = make_windows(world, graph, 1 + static_cast<std::uint32_t>(seed % 3));
  auto& random = world.random();
  constexpr std::uint64_t kDeposits = 200;
  struct Deposit {
    bool is_put;
    double value;
  };
  std::vector<Deposit> deposits;
  double reference = 0;      // for the receiver's buffer
  std::uint64_t taken = 0;   // deposits in it
  std::uint64_t known = 0;   // those since the last update
  std::uint64_t merges = 0;  // how often several arrived at once
  const WeightedPeer to[] = {{Rank(1), 2}};
  const WeightedPeer from[] = {{Rank(0), 1}};
  auto& sender = *windows[0];
  auto& receiver = *windows[1];
  const auto act = [&](int rank) {
    if (rank == 0) {
      if (deposits.size() == kDeposits) return sender.flush().is_ok();
      const bool is_put = random() % 4 == 0;
      const double value = static_cast<double>(random() % 1000);
      std::fill(sender.self().begin(), sender.self().end(), value);
      sender.set_p(value);
      deposits.push_back({is_put, 2 * value});
      EXPECT_TRUE(is_put ? sender.put(to) : sender.accumulate(to));
      return false;
    }
    if (random() % 8 != 0) return taken == kDeposits;
    EXPECT_TRUE(receiver.progress().is_ok());
    const auto buffer = receiver.buffer(Rank(0)).value();
    merges += buffer.version - known > 1 ? 1 : 0;
    for (std::uint64_t left = buffer.version - known; left > 0; --left, ++taken)
      reference = deposits[taken].value + (deposits[taken].is_put ? 0 : reference);
    known = buffer.version;
    EXPECT_EQ(buffer.p, reference) << "seed " << seed;
    for (const double element : buffer.tensor) EXPECT_EQ(element, reference) << "seed " << seed;
    if (random() % 3 == 0) {
      std::fill(receiver.self().begin(), receiver.self().end(), 0.0);
      receiver.set_p(0);
      const auto report = receiver.update({1, from, true});
      EXPECT_TRUE(report);
      EXPECT_EQ(report->deposits, buffer.version);
      EXPECT_EQ(report->p, reference);
      for (const double element : receiver.self()) EXPECT_EQ(element, reference);
      reference = 0;
      known = 0;
    }
    return taken == kDeposits;
  };
  ASSERT_TRUE(world.run(act)) << "seed " << seed << ": nothing moves any more";
  EXPECT_GT(merges, 0u) << "seed " << seed << ": nothing was merged";
}

// A rank dies at a random moment. The others go on without it, and nothing is lost among them: in
// the end they hold what they had, less what they gave to the dead rank, plus what they got from
// it.
TEST_P(WindowChaosTest, ADeathTakesWhatWasDepositedWithItAndNoMore) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 3 + static_cast<int>(seed % 5));
  const Graph graph =
      collective::make_graph(kSpecs[seed % std::size(kSpecs)], world.size()).value();
  Windows windows = make_windows(world, graph, 1 + static_cast<std::uint32_t>(seed % 3));
  auto& random = world.random();
  const Rank victim(static_cast<int>(random() % static_cast<std::uint64_t>(world.size())));
  world.network().lose_at(victim, TimePoint() + std::chrono::microseconds(random() % 1000));
  constexpr int kSteps = 60;
  std::vector<int> steps(windows.size());
  std::vector<std::vector<Rank>> peers;
  std::vector<std::vector<Rank>> sources;
  for (int rank = 0; rank < world.size(); ++rank) {
    peers.push_back(out_neighbors(graph, rank));
    sources.push_back(in_neighbors(graph, rank));
  }
  double expected = 0;    // of the survivors' first element
  double expected_p = 0;  // and of their p
  for (int rank = 0; rank < world.size(); ++rank) {
    if (Rank(rank) == victim) continue;
    expected += initial(rank, 0);
    expected_p += 1;
  }
  const auto has = [](const std::vector<Rank>& ranks, Rank rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  const auto collect = [&](int rank) {
    auto& window = *windows[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(window.progress().is_ok());
    if (Rank(rank) != victim && has(sources[static_cast<std::size_t>(rank)], victim)) {
      const auto buffer = window.buffer(victim).value();
      expected += buffer.tensor[0];
      expected_p += buffer.p;
    }
    EXPECT_TRUE(window.update_then_collect());
  };
  const bool is_finished = world.run([&](int rank) {
    if (world.network().is_lost(Rank(rank))) return true;
    const auto self = static_cast<std::size_t>(rank);
    auto& window = *windows[self];
    if (steps[self] == kSteps) {
      const Status status = window.flush();
      if (status.is_error()) {
        EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
        EXPECT_EQ(status.peer(), victim) << status.to_string();
        return false;
      }
      for (int other = 0; other < world.size(); ++other) {
        if (!world.network().is_lost(Rank(other)) &&
            steps[static_cast<std::size_t>(other)] < kSteps) {
          return false;
        }
      }
      return status.is_ok();
    }
    if (random() % 2 == 0) {
      collect(rank);
      return false;
    }
    const double first = window.self()[0];
    const double p = window.p();
    const double share = 1.0 / static_cast<double>(peers[self].size() + 1);
    const auto done = window.accumulate(shares(peers[self]), share);
    if (!done) {
      EXPECT_EQ(done.status().code(), Code::kPeerDead) << done.status().to_string();
      EXPECT_EQ(done.status().peer(), victim) << done.status().to_string();
      EXPECT_EQ(window.self()[0], first);
      EXPECT_EQ(std::erase(peers[self], victim), 1u);
      return false;
    }
    if (Rank(rank) != victim && has(peers[self], victim)) {
      expected -= share * first;
      expected_p -= share * p;
    }
    ++steps[self];
    return false;
  });
  ASSERT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
  double sum = 0;
  double p = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (Rank(rank) == victim) continue;
    collect(rank);
    sum += windows[static_cast<std::size_t>(rank)]->self()[0];
    p += windows[static_cast<std::size_t>(rank)]->p();
  }
  // The bound is relative to the sum of all values.
  EXPECT_NEAR(sum, expected, 1e-12 * 2.5 * world.size()) << "seed " << seed;
  EXPECT_NEAR(p, expected_p, 1e-12 * world.size()) << "seed " << seed;
}

TEST(Window, RefusesWhatCannotBe) {
  HostileWorld world(1, 3);
  const Graph graph = collective::make_graph("ring", 3).value();
  Windows windows = make_windows(world, graph, 1);
  auto& window = *windows[0];
  const Rank out = out_neighbors(graph, 0)[0];
  const Rank in = in_neighbors(graph, 0)[0];
  const double first = window.self()[0];
  const auto code = [](const auto& result) { return result.status().code(); };
  for (const Rank stranger : {Rank(0), Rank(3), Rank(-1)}) {
    const WeightedPeer peers[] = {{out, 1}, {stranger, 1}};
    EXPECT_EQ(code(window.put(peers, 0.5)), Code::kInvalidArgument);
    EXPECT_EQ(code(window.accumulate(peers, 0.5)), Code::kInvalidArgument);
    const WeightedPeer sources[] = {{stranger, 1}};
    EXPECT_EQ(code(window.update({1, sources})), Code::kInvalidArgument);
    EXPECT_EQ(code(window.buffer(stranger)), Code::kInvalidArgument);
  }
  const WeightedPeer twice[] = {{in, 1}, {in, 1}};
  EXPECT_EQ(code(window.update({1, twice})), Code::kInvalidArgument);
  std::vector<double> small(kCount - 1);
  EXPECT_EQ(code(window.update({1, {}, false, small})), Code::kInvalidArgument);
  EXPECT_EQ(window.self()[0], first);
  EXPECT_EQ(window.p(), 1);
  EXPECT_TRUE(window.flush().is_ok()) << "something was deposited by what was refused";

  WindowOptions options;
  options.count = 4;
  EXPECT_EQ(code(NeighborWindow<double>::prepare(world.fabric(0), options, small)),
            Code::kInvalidArgument);
  options.neighborhood.in = {Rank(1)};
  EXPECT_EQ(code(NeighborWindow<double>::prepare(world.fabric(0), options)),
            Code::kInvalidArgument);
}

// An update with a result elsewhere leaves self alone. Buffers that an update doesn't name stay as
// they are.
TEST(Window, UpdatesWhatItIsToldTo) {
  HostileWorld world(2, 3);
  const Graph graph = collective::make_graph("complete", 3).value();
  Windows windows;
  const std::vector<double> tensor(kCount, 3.0);
  for (int rank = 0; rank < 3; ++rank) {
    WindowOptions options;
    options.neighborhood =
        collective::neighborhood_of(graph, Weighting::kUniform, everybody(3).members, Rank(rank))
            .value();
    options.count = kCount;
    windows.push_back(NeighborWindow<double>::prepare(world.fabric(rank), options, tensor).value());
  }
  for (auto& window : windows) ASSERT_TRUE(window->connect().is_ok());
  auto& window = *windows[0];
  EXPECT_EQ(window.buffer(Rank(1)).value().tensor[kCount - 1], 3);  // copies of self at first
  const WeightedPeer to[] = {{Rank(0), 1}};
  for (int rank = 1; rank < 3; ++rank) {
    auto& peer = *windows[static_cast<std::size_t>(rank)];
    std::fill(peer.self().begin(), peer.self().end(), 10.0 * rank);
    ASSERT_TRUE(peer.put(to, 0.5));
    EXPECT_EQ(peer.self()[0], 5.0 * rank);
    EXPECT_EQ(peer.p(), 0.5);
  }
  ASSERT_TRUE(world.run([&](int rank) {
    return windows[rank == 0 ? 0U : 1U]->flush().is_ok() && windows[2]->flush().is_ok();
  }));
  std::vector<double> result(kCount);
  const WeightedPeer one[] = {{Rank(2), 4}};
  const auto elsewhere = window.update({2, one, true, result});
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(result[kCount - 1], 2 * 3 + 4 * 20);
  EXPECT_EQ(elsewhere->p, 2 + 4);
  EXPECT_EQ(elsewhere->deposits, 1u);
  EXPECT_EQ(window.self()[0], 3);
  EXPECT_EQ(window.p(), 1);
  EXPECT_EQ(window.buffer(Rank(2)).value().tensor[0], 0);
  EXPECT_EQ(window.buffer(Rank(2)).value().p, 0);
  EXPECT_EQ(window.buffer(Rank(2)).value().version, 0u);
  EXPECT_EQ(window.buffer(Rank(1)).value().version, 1u);
  const auto here = window.update();  // with the graph's weights: a third each
  ASSERT_TRUE(here);
  EXPECT_NEAR(window.self()[kCount - 1], (3 + 10 + 0) / 3.0, 1e-14);
  EXPECT_NEAR(window.p(), (1 + 1) / 3.0, 1e-15);
  EXPECT_EQ(window.buffer(Rank(1)).value().tensor[0], 10);  // not reset
  EXPECT_EQ(window.buffer(Rank(1)).value().version, 0u);
}

// A get reads a whole version that the owner rank has published, never one older than the last,
// however often the owner rank writes over it meanwhile.
TEST_P(WindowChaosTest, GetsReadWholeSnapshots) {
  const std::uint64_t seed = GetParam();
  HostileWorld world(seed, 2 + static_cast<int>(seed % 3));
  const Graph graph = collective::make_graph("complete", world.size()).value();
  Windows windows = make_windows(world, graph, 1, true);
  auto& random = world.random();
  constexpr int kVersions = 100;
  constexpr int kGets = 30;
  const auto self_of = [](int rank, int version, std::size_t element) {
    return rank * 1000.0 + version + static_cast<double>(element) / 64;
  };
  struct Progress {
    int versions = 0;
    int gets = 0;
    bool is_getting = false;
    std::vector<double> seen;
    std::vector<WeightedPeer> from;
  };
  std::vector<Progress> ranks(windows.size());
  for (int rank = 0; rank < world.size(); ++rank) {
    auto& mine = ranks[static_cast<std::size_t>(rank)];
    mine.seen.assign(windows.size(), 1);  // p, as it is at first
    for (const Rank peer : in_neighbors(graph, rank)) mine.from.push_back({peer, 0.5});
  }
  const auto look = [&](int rank) {
    auto& mine = ranks[static_cast<std::size_t>(rank)];
    for (const WeightedPeer& each : mine.from) {
      const auto buffer = windows[static_cast<std::size_t>(rank)]->buffer(each.peer).value();
      const double version = 2 * buffer.p - 1;
      EXPECT_GE(2 * buffer.p, mine.seen[each.peer.index()]) << "seed " << seed;
      mine.seen[each.peer.index()] = 2 * buffer.p;
      for (std::size_t i = 0; version > 0 && i < kCount; ++i) {
        ASSERT_EQ(2 * buffer.tensor[i], self_of(each.peer.value(), static_cast<int>(version), i))
            << "seed " << seed << " element " << i;
      }
    }
  };
  const bool is_finished = world.run([&](int rank) {
    auto& window = *windows[static_cast<std::size_t>(rank)];
    auto& mine = ranks[static_cast<std::size_t>(rank)];
    if (mine.versions < kVersions && random() % 3 == 0) {
      // Others may read while this is half written.
      ++mine.versions;
      for (std::size_t i = 0; i < kCount; ++i) window.self()[i] = self_of(rank, mine.versions, i);
      window.set_p(mine.versions + 1);
      EXPECT_TRUE(window.publish().is_ok());
    }
    if (mine.gets == kGets) return mine.versions == kVersions;
    if (!mine.is_getting) {
      const Status status = window.start_get(mine.from);
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_TRUE(window.start_get(mine.from).is_busy());
      mine.is_getting = true;
    } else if (random() % 50 == 0) {
      window.cancel_get();  // the data of this read still arrive, and must not be used
      mine.is_getting = false;
    } else if (const Status status = window.test_get(); !status.is_busy()) {
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      mine.is_getting = false;
      ++mine.gets;
      look(rank);
    }
    return false;
  });
  ASSERT_TRUE(is_finished) << "seed " << seed << ": nothing moves any more";
}

TEST(Window, TensorsHaveALimit) {
  HostileWorld world(1, 1);
  WindowOptions options;
  for (const std::size_t count : {std::size_t{1} << 29, std::size_t{1} << 61, SIZE_MAX}) {
    options.count = count;
    const auto made = NeighborWindow<double>::prepare(world.fabric(0), options);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument) << made.status().to_string();
  }
  options.count = 3;
  const auto window = NeighborWindow<double>::prepare(world.fabric(0), options);
  ASSERT_TRUE(window);
  EXPECT_EQ((*window)->start_get({}).code(), Code::kInvalidArgument);  // not readable
}

INSTANTIATE_TEST_SUITE_P(Seeds, WindowChaosTest,
                         ::testing::Range<std::uint64_t>(1, 1 + testing::seeds(200)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
