// Partial all-reduces, stepped in virtual time on the hostile network, over many seeds: random
// groups that share ranks, random sizes and algorithms, a death, and members that abort at random
// moments.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/partial/partial_all_reduce.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/mixed_models.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::DataType;
using collective::PartialAllReduce;
using collective::PartialCall;
using collective::PartialOptions;
using collective::PartialRequest;

// An operation; all ranks know all of them.
struct Task {
  std::vector<Rank> members;
  std::size_t count = 0;
  std::map<int, std::vector<double>> inputs;  // by rank, of members that have called it
  std::map<int, Status> outcomes;             // by rank
  std::vector<double> result;                 // of the first member that has succeeded
  bool has(int rank) const { return std::ranges::find(members, Rank(rank)) != members.end(); }
};

struct Faults {
  int victim = -1;          // the rank that dies
  std::uint64_t after = 0;  // the number of the act in which it dies
  bool aborts = false;      // waiting members abort now and then
};

constexpr std::uint64_t kUsualSeeds = 150;

class PartialChaosTest : public ::testing::TestWithParam<std::uint64_t> {
 public:
  static void TearDownTestSuite() {
    if (!are_representative(worlds_with_aborts_, kUsualSeeds)) return;
    EXPECT_GT(succeeded_, worlds_with_aborts_);
    EXPECT_GT(aborted_, worlds_with_aborts_);
  }

 protected:
  static constexpr std::size_t kTasks = 14;
  static constexpr std::size_t kMost = 5000;  // elements: longer than the scratch

  static PartialOptions options(std::uint64_t seed) {
    PartialOptions options;
    options.scratch_bytes = 32 << 10;
    options.segment_bytes = 2 << 10;
    const char* const algorithms[] = {"", "ring", "halving-doubling", "", "tree"};
    options.algorithm = algorithms[seed % std::size(algorithms)];
    return options;
  }

  // The state of one rank.
  struct Player {
    std::unique_ptr<PartialAllReduce> partial;
    std::vector<double*> free;  // memory for models that no rank writes to
    double* model = nullptr;
    double* result = nullptr;
    std::size_t next = 0;
    std::optional<PartialRequest> request;
    std::uint64_t acts = 0;
  };

  double* take(Player& player, bool is_other) {
    if (player.free.empty()) {
      if (is_other) {
        others_.push_back(std::make_unique<std::vector<double>>(kMost));
        return others_.back()->data();
      }
      return reinterpret_cast<double*>(
          player.partial->allocate(kMost * sizeof(double)).value().data());
    }
    double* const taken = player.free.back();
    player.free.pop_back();
    return taken;
  }

  void draw(std::mt19937_64& random, int size) {
    for (std::size_t i = 0; i < kTasks; ++i) {
      Task& task = tasks_.emplace_back();
      task.members = MixedModels::draw_group(random, size);
      task.count = random() % 3 == 0 ? random() % 40 : random() % kMost;
    }
  }

  void run(HostileWorld& world, const Faults& faults) {
    draw(world.random(), world.size());
    std::vector<Player> players(static_cast<std::size_t>(world.size()));
    // In some runs one rank uses other memory, so that all copy through staging memory.
    const bool has_other = GetParam() % 4 == 0;
    for (int rank = 0; rank < world.size(); ++rank) {
      Player& player = players[static_cast<std::size_t>(rank)];
      player.partial = PartialAllReduce::create(world.fabric(rank), options(GetParam())).value();
      player.model = take(player, has_other && rank == 0);
      for (std::size_t e = 0; e < kMost; ++e)
        player.model[e] = MixedModels::initial(static_cast<std::size_t>(rank), e);
    }
    const bool is_finished = world.run([&](int rank) {
      Player& player = players[static_cast<std::size_t>(rank)];
      if (rank == faults.victim && ++player.acts >= faults.after) {
        if (player.acts == faults.after) world.job().kill(Rank(rank), "by the test");
        return true;
      }
      act(world, rank, player, has_other && rank == 0, faults.aborts);
      // A rank that is done still acknowledges.
      player.partial->progress();
      return player.next == kTasks;
    });
    ASSERT_TRUE(is_finished) << "seed " << GetParam() << ": nothing moves any more";
    expect_right_outcomes(faults);
  }

  void act(HostileWorld& world, int rank, Player& player, bool is_other, bool aborts) {
    while (player.next < kTasks && !tasks_[player.next].has(rank)) ++player.next;
    if (player.next == kTasks) return;
    Task& task = tasks_[player.next];
    if (!player.request) {
      if (world.random()() % 3 == 0) return;  // computes
      player.result = take(player, is_other);
      PartialCall call{.number = player.next + 1, .members = task.members};
      call.input = player.model;
      call.output = player.result;
      call.count = task.count;
      call.reduction.type = DataType::kFloat64;
      task.inputs[rank].assign(player.model, player.model + task.count);
      player.request = player.partial->start(call).value();
    }
    Status status = player.partial->test(*player.request);
    if (status.is_busy() && aborts && world.random()() % 400 == 0)
      status = player.partial->wait(*player.request, Duration::zero());
    if (status.is_busy()) return;
    if (status.is_ok()) {
      expect_mean(task, player.result);
      std::copy(player.model + task.count, player.model + kMost, player.result + task.count);
      player.free.push_back(player.model);
      player.model = player.result;
    } else {
      // The input is unchanged. Members may still read it and write to the result, so both are
      // freed: they come back once no member does.
      ASSERT_TRUE(std::equal(task.inputs[rank].begin(), task.inputs[rank].end(), player.model));
      double* const fresh = take(player, is_other);
      std::copy_n(player.model, kMost, fresh);
      if (!is_other) {
        for (double* const used : {player.model, player.result}) {
          const Status freed =
              player.partial->free({reinterpret_cast<std::byte*>(used), kMost * sizeof(double)});
          ASSERT_TRUE(freed.is_ok()) << freed.to_string();
        }
      }
      player.model = fresh;
    }
    task.outcomes[rank] = std::move(status);
    player.request.reset();
    ++player.next;
  }

  void expect_mean(Task& task, const double* result) {
    ASSERT_EQ(task.inputs.size(), task.members.size());
    if (task.result.empty()) task.result.assign(result, result + task.count);
    ASSERT_TRUE(std::equal(task.result.begin(), task.result.end(), result))
        << "seed " << GetParam() << " operation " << &task - tasks_.data() << ": not the same bits";
    for (std::size_t e = 0; e < task.count; ++e) {
      double sum = 0;
      for (const auto& [rank, input] : task.inputs) sum += input[e];
      ASSERT_NEAR(result[e], sum / static_cast<double>(task.members.size()), 1e-14)
          << "seed " << GetParam() << " operation " << &task - tasks_.data() << " element " << e;
    }
  }

  void expect_right_outcomes(const Faults& faults) {
    for (const Task& task : tasks_) {
      for (const Rank member : task.members) {
        if (member.value() == faults.victim) continue;
        ASSERT_TRUE(task.outcomes.contains(member.value()));
        const Status& outcome = task.outcomes.at(member.value());
        if (faults.aborts) ++(outcome.is_ok() ? succeeded_ : aborted_);
        if (outcome.is_ok()) continue;
        if (task.has(faults.victim)) {
          EXPECT_EQ(outcome.code(), Code::kPeerDead) << outcome.to_string();
          EXPECT_EQ(outcome.peer(), Rank(faults.victim)) << outcome.to_string();
        } else {
          EXPECT_TRUE(faults.aborts) << outcome.to_string();
          EXPECT_EQ(outcome.code(), Code::kDeadlineExceeded) << outcome.to_string();
        }
      }
    }
  }

  // In worlds in which members abort now and then, some operations have to succeed, and some to
  // fail.
  static inline std::uint64_t worlds_with_aborts_ = 0;
  static inline std::uint64_t succeeded_ = 0;  // outcomes, of all seeds
  static inline std::uint64_t aborted_ = 0;

  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<std::vector<double>>> others_;
};

TEST_P(PartialChaosTest, EveryGroupGetsItsMean) {
  HostileWorld world(GetParam(), 2 + static_cast<int>(GetParam() % 5));
  run(world, {});
}

TEST_P(PartialChaosTest, ADeathEndsItsGroupsOnly) {
  HostileWorld world(GetParam(), 3 + static_cast<int>(GetParam() % 4));
  const int victim = static_cast<int>(GetParam() % static_cast<std::uint64_t>(world.size()));
  run(world, {.victim = victim, .after = 1 + world.random()() % 1500});
}

TEST_P(PartialChaosTest, AbortsSpoilNothing) {
  HostileWorld world(GetParam(), 2 + static_cast<int>(GetParam() % 4));
  ++worlds_with_aborts_;
  run(world, {.aborts = true});
}

INSTANTIATE_TEST_SUITE_P(Seeds, PartialChaosTest,
                         ::testing::Range<std::uint64_t>(0, seeds(kUsualSeeds)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
