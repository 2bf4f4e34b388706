// Averages and gathers with neighbors, stepped in virtual time on the hostile network, over many
// seeds: random neighbors, names, sizes and orders, several calls at once or one by one, canceled
// calls, and a death.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "collectives/neighbor/neighbor_exchange.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::DataType;
using collective::NeighborCall;
using collective::NeighborExchange;
using collective::NeighborRequest;
using collective::OnDeath;
using collective::WeightedRank;

double value(int rank, std::size_t call, std::size_t element) {
  return std::cos(static_cast<double>(rank * 37) + static_cast<double>(call * 11 + element));
}

struct Task {
  std::string name;
  NeighborCall call;
  bool is_gather = false;
  bool is_in_place = false;
  std::vector<double> input;
  std::vector<double> output;
  std::vector<Bytes> gathered;
  NeighborRequest request{};
  Status outcome = Status::busy();
};

// The tasks of all ranks. Edges, sizes and names are drawn once for all of them.
class Tasks {
 public:
  Tasks(std::mt19937_64& random, int size, std::size_t calls)
      : size_(size), tasks_(static_cast<std::size_t>(size)), order_(tasks_.size()) {
    for (std::size_t index = 0; index < calls; ++index) draw(random, index);
    for (std::vector<std::size_t>& order : order_) {
      for (std::size_t i = 0; i < calls; ++i) order.push_back(i);
      std::shuffle(order.begin(), order.end(), random);
      keep_names_in_order(order);
    }
  }

  Task& of(int rank, std::size_t index) { return tasks_[static_cast<std::size_t>(rank)][index]; }
  // The index of the rank's `place`-th call.
  std::size_t index(int rank, std::size_t place) const {
    return order_[static_cast<std::size_t>(rank)][place];
  }

  void expect_right(int rank, std::size_t index) {
    Task& task = of(rank, index);
    if (task.is_gather) {
      for (std::size_t i = 0; i < task.gathered.size(); ++i) {
        const std::vector<double>& sent = of(task.call.sources[i].rank.value(), index).input;
        ASSERT_EQ(task.gathered[i].size(), sent.size() * sizeof(double));
        ASSERT_TRUE(std::equal(task.gathered[i].begin(), task.gathered[i].end(),
                               std::as_bytes(std::span(sent)).begin()));
      }
      return;
    }
    const std::vector<double>& output = task.is_in_place ? task.input : task.output;
    for (std::size_t element = 0; element < output.size(); ++element) {
      double sum = task.call.self_weight * value(rank, index, element);
      for (const WeightedRank& from : task.call.sources) {
        sum +=
            from.weight * push(from.rank.value(), rank) * value(from.rank.value(), index, element);
      }
      ASSERT_NEAR(output[element], sum, 1e-12) << "rank " << rank << " call " << index;
    }
  }

  void set_on_death(OnDeath on_death) {
    for (std::vector<Task>& tasks : tasks_) {
      for (Task& task : tasks) task.call.on_death = on_death;
    }
  }
  // Each element of an average has the dead rank's share, or what takes its place.
  void expect_right_without(int rank, std::size_t index, int dead) {
    Task& task = of(rank, index);
    const OnDeath on_death = task.call.on_death;
    const std::vector<double>& output = task.is_in_place ? task.input : task.output;
    for (std::size_t element = 0; element < output.size(); ++element) {
      const double own = value(rank, index, element);
      double sum = task.call.self_weight * own;
      std::vector<double> shares = {0};  // of the dead source
      for (const WeightedRank& from : task.call.sources) {
        const int source = from.rank.value();
        const double share = from.weight * push(source, rank);
        const double theirs = value(source, index, element);
        if (source != dead) {
          sum += share * theirs;
        } else if (on_death == OnDeath::kOwnData) {
          shares = {share * theirs, share * own, from.weight * own};
        } else {
          shares.push_back(share * theirs);
        }
      }
      std::vector<double> right;
      for (const double share : shares) right.push_back(sum + share);
      for (const WeightedRank& to : task.call.destinations) {
        if (to.rank != Rank(dead) || on_death != OnDeath::kOwnShare) continue;
        for (const double share : shares) right.push_back(sum + share + to.weight * own);
      }
      ASSERT_TRUE(std::ranges::any_of(
          right, [&](double each) { return std::abs(output[element] - each) < 1e-12; }))
          << "rank " << rank << " call " << index << " element " << element;
    }
  }

 private:
  static constexpr std::size_t kNames = 4;
  static double push(int from, int to) { return 1.0 / (1 + from + 2 * to); }

  // Calls of one name meet in the order in which they are made, so each rank makes these in one
  // order.
  static void keep_names_in_order(std::vector<std::size_t>& order) {
    for (std::size_t name = 0; name < kNames; ++name) {
      std::size_t next = name;
      for (std::size_t& index : order) {
        if (index % kNames != name) continue;
        index = next;
        next += kNames;
      }
    }
  }

  void draw(std::mt19937_64& random, std::size_t index) {
    const bool is_gather = random() % 3 == 0;
    // The data fit into a message, or take up to a dozen chunks.
    const std::size_t count = random() % 2 == 0 ? random() % 60 : random() % 6000;
    for (int rank = 0; rank < size_; ++rank) {
      Task task;
      task.name = fmt::format("name {}", index % kNames);
      task.is_gather = is_gather;
      task.is_in_place = !is_gather && index % 3 == 0;
      const std::size_t own = is_gather ? random() % (count + 1) : count;
      for (std::size_t i = 0; i < own; ++i) task.input.push_back(value(rank, index, i));
      task.output.resize(is_gather ? 0 : count);
      task.call.type = DataType::kFloat64;
      task.call.count = own;
      task.call.self_weight = 0.5;
      tasks_[static_cast<std::size_t>(rank)].push_back(std::move(task));
    }
    for (int from = 0; from < size_; ++from) {
      for (int to = 0; to < size_; ++to) {
        if (from == to || random() % 2 == 0) continue;
        of(to, index).call.sources.push_back({Rank(from), 0.25 * (1 + to)});
        of(from, index).call.destinations.push_back({Rank(to), push(from, to)});
      }
    }
  }

  int size_;
  std::vector<std::vector<Task>> tasks_;
  std::vector<std::vector<std::size_t>> order_;
};

constexpr std::uint64_t kUsualSeeds = 200;

class NeighborChaosTest : public ::testing::TestWithParam<std::uint64_t> {
 public:
  static void TearDownTestSuite() {
    if (!are_representative(worlds_ / 2, kUsualSeeds)) return;  // each seed twice
    // There has to be fusion in most worlds, and none in those that turn it off.
    EXPECT_GT(fusing_worlds_, worlds_ / 2);
    EXPECT_LT(fusing_worlds_, worlds_);
    EXPECT_GT(fused_, 10 * worlds_);
    EXPECT_GT(canceled_, worlds_);
  }

 protected:
  static constexpr std::size_t kCalls = 12;

  // Longest message of several calls. Each rank has its own; one in six has no fusion.
  static std::size_t threshold(std::mt19937_64& random) {
    return random() % 6 == 0 ? 0 : 100 + random() % 16'000;
  }

  // A call that no rank answers, and that is canceled at once. Other calls go on.
  void cancel_one(HostileWorld& world, int rank, NeighborExchange& exchange) {
    const Rank peer((rank + 1) % world.size());
    const double input = 1;
    double output = 0;
    NeighborCall call;
    call.name = "canceled";
    call.input = &input;
    call.output = &output;
    call.count = 1;
    call.type = DataType::kFloat64;
    call.sources = {{peer}};
    if (world.random()() % 2 == 0) call.destinations = {{peer}};
    const auto request = exchange.start(call);
    ASSERT_TRUE(request.is_ok()) << request.status().to_string();
    EXPECT_TRUE(exchange.wait(*request, Duration::zero()).is_error());
    ++canceled_;
  }

  void start(Task& task, NeighborExchange& exchange) {
    task.call.name = task.name;
    task.call.input = task.input.data();
    task.call.output = task.is_in_place ? task.input.data() : task.output.data();
    const auto request = task.is_gather ? exchange.start_gather(task.call, task.gathered)
                                        : exchange.start(task.call);
    EXPECT_TRUE(request.is_ok()) << request.status().to_string();
    task.request = *request;
  }

  // Runs all tasks, random numbers of them at a time. Rank `dead` dies half-way.
  void run(HostileWorld& world, Tasks& tasks, int dead) {
    std::vector<std::unique_ptr<NeighborExchange>> exchanges;
    const bool is_fused = world.random()() % 4 != 0;
    for (int rank = 0; rank < world.size(); ++rank) {
      collective::NeighborOptions options;
      options.slot_bytes = 4096;
      options.depth = 2;
      options.fusion_threshold = is_fused ? threshold(world.random()) : 0;
      exchanges.push_back(NeighborExchange::create(world.fabric(rank), options).value());
    }
    std::vector<std::size_t> started(exchanges.size());
    const bool is_finished = world.run([&](int rank) {
      NeighborExchange& exchange = *exchanges[static_cast<std::size_t>(rank)];
      std::size_t& next = started[static_cast<std::size_t>(rank)];
      if (rank == dead && next == kCalls / 2) {
        if (world.fabric(rank == 0 ? 1 : 0).peers().is_present(Rank(rank))) {
          world.job().kill(Rank(rank), "by the test");
        }
        return true;
      }
      const std::size_t last = rank == dead ? kCalls / 2 : kCalls;
      for (auto burst = world.random()() % 6; burst > 0 && next < last; --burst) {
        start(tasks.of(rank, tasks.index(rank, next++)), exchange);
        if (dead < 0 && world.random()() % 8 == 0) cancel_one(world, rank, exchange);
      }
      // A rank that has done all its calls does no more than progress its fabric, though others
      // may announce data of canceled ones.
      bool is_done = next == kCalls;
      for (std::size_t place = 0; place < next; ++place) {
        Task& task = tasks.of(rank, tasks.index(rank, place));
        if (task.outcome.is_busy()) task.outcome = exchange.test(task.request);
        is_done = is_done && !task.outcome.is_busy();
      }
      return is_done;
    });
    ASSERT_TRUE(is_finished) << "seed " << GetParam() << ": nothing moves any more";
    std::uint64_t fused = 0;
    for (const auto& exchange : exchanges) {
      fused += exchange->traffic().parts - exchange->traffic().messages;
    }
    EXPECT_TRUE(is_fused || fused == 0) << fused;
    ++worlds_;
    fused_ += fused;
    if (fused > 0) ++fusing_worlds_;
  }

 private:
  static inline std::uint64_t worlds_ = 0;
  static inline std::uint64_t fusing_worlds_ = 0;
  static inline std::uint64_t fused_ = 0;  // parts without a message of their own
  static inline std::uint64_t canceled_ = 0;
};

TEST_P(NeighborChaosTest, EveryCallMeetsItsOwn) {
  HostileWorld world(GetParam(), 2 + static_cast<int>(GetParam() % 4));
  Tasks tasks(world.random(), world.size(), kCalls);
  run(world, tasks, -1);
  for (int rank = 0; rank < world.size(); ++rank) {
    for (std::size_t index = 0; index < kCalls; ++index) {
      const Status& outcome = tasks.of(rank, index).outcome;
      ASSERT_TRUE(outcome.is_ok()) << outcome.to_string();
      tasks.expect_right(rank, index);
    }
  }
}

// Calls without the dead rank go on. The others fail, and name it.
TEST_P(NeighborChaosTest, ADeathEndsNoOtherCall) {
  HostileWorld world(GetParam(), 3 + static_cast<int>(GetParam() % 3));
  Tasks tasks(world.random(), world.size(), kCalls);
  const int dead = static_cast<int>(GetParam() % static_cast<std::uint64_t>(world.size()));
  run(world, tasks, dead);
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == dead) continue;
    for (std::size_t index = 0; index < kCalls; ++index) {
      const Task& task = tasks.of(rank, index);
      const auto is_dead = [&](const WeightedRank& each) { return each.rank == Rank(dead); };
      const bool needs_dead =
          std::any_of(task.call.sources.begin(), task.call.sources.end(), is_dead) ||
          std::any_of(task.call.destinations.begin(), task.call.destinations.end(), is_dead);
      if (task.outcome.is_ok()) {
        tasks.expect_right(rank, index);
      } else {
        ASSERT_EQ(task.outcome.code(), Code::kPeerDead) << task.outcome.to_string();
        ASSERT_TRUE(needs_dead) << task.outcome.to_string();
      }
    }
  }
}

TEST_P(NeighborChaosTest, AveragesGoOnAfterADeath) {
  HostileWorld world(GetParam(), 3 + static_cast<int>(GetParam() % 3));
  Tasks tasks(world.random(), world.size(), kCalls);
  tasks.set_on_death(GetParam() % 2 == 0 ? OnDeath::kOwnData : OnDeath::kOwnShare);
  const int dead = static_cast<int>(GetParam() % static_cast<std::uint64_t>(world.size()));
  run(world, tasks, dead);
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == dead) continue;
    for (std::size_t index = 0; index < kCalls; ++index) {
      const Task& task = tasks.of(rank, index);
      if (task.is_gather) continue;
      ASSERT_TRUE(task.outcome.is_ok()) << task.outcome.to_string();
      tasks.expect_right_without(rank, index, dead);
    }
  }
}

// A large call in progress, from rank 0 to rank 1, each of which gives the number of its elements.
struct Transfer {
  Transfer(HostileWorld& world, std::size_t sent, std::size_t expected)
      : data{std::vector<double>(sent), std::vector<double>(expected)} {
    collective::NeighborOptions options;
    options.slot_bytes = 4096;
    options.depth = 2;
    for (int rank = 0; rank < 2; ++rank)
      exchanges.push_back(NeighborExchange::create(world.fabric(rank), options).value());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      NeighborCall call;
      call.input = data[rank].data();
      call.output = data[rank].data();
      call.count = data[rank].size();
      call.type = DataType::kFloat64;
      (rank == 0 ? call.destinations : call.sources).push_back({Rank(rank == 0 ? 1 : 0)});
      requests.push_back(exchanges[rank]->start(call).value());
    }
  }

  std::vector<std::vector<double>> data;
  std::vector<std::unique_ptr<NeighborExchange>> exchanges;
  std::vector<NeighborRequest> requests;
};

// A call that ends while chunks of it are on their way: the source gets rid of the rest.
TEST_P(NeighborChaosTest, ACallThatIsCanceledInMidTransferHoldsUpNoSource) {
  HostileWorld world(GetParam(), 2);
  Transfer transfer(world, 20'000, 20'000);
  Status sent = Status::busy();
  auto turns = world.random()() % 400;  // of the destination, which never calls it again then
  const bool is_finished = world.run([&](int rank) {
    if (rank == 0) {
      if (sent.is_busy()) sent = transfer.exchanges[0]->test(transfer.requests[0]);
      return !sent.is_busy();
    }
    if (turns == 0) return true;
    if (--turns == 0) {
      transfer.exchanges[1]->give_up(transfer.requests[1], collective::Missed::kDropped);
    } else {
      (void)transfer.exchanges[1]->test(transfer.requests[1]);
    }
    return turns == 0;
  });
  EXPECT_TRUE(is_finished) << sent.to_string();
}

// The one that finds out first never calls the exchange again, and there may be no room for what it
// has to say at that moment.
TEST_P(NeighborChaosTest, ADisagreementIsHeard) {
  HostileWorld world(GetParam(), 2);
  Transfer transfer(world, 20'000, 10'000);
  std::vector<Status> outcomes(2, Status::busy());
  const bool is_finished = world.run([&](int rank) {
    const auto self = static_cast<std::size_t>(rank);
    if (outcomes[self].is_busy())
      outcomes[self] = transfer.exchanges[self]->test(transfer.requests[self]);
    return !outcomes[self].is_busy();
  });
  ASSERT_TRUE(is_finished) << outcomes[0].to_string() << ", " << outcomes[1].to_string();
  for (const Status& outcome : outcomes)
    EXPECT_EQ(outcome.code(), Code::kInvalidArgument) << outcome.to_string();
}

INSTANTIATE_TEST_SUITE_P(Seeds, NeighborChaosTest,
                         ::testing::Range<std::uint64_t>(0, seeds(kUsualSeeds)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
