// Averages by groups and their service, stepped in virtual time on the hostile network, over many
// seeds: every source of groups, workers of different speeds that leave at different times, and
// deaths of masters and of others, also of several at once, of which each rank learns at another
// moment.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "collectives/groups/group_average.h"
#include "tests/sim/hostile_world.h"
#include "tests/support/group_check.h"
#include "tests/support/mixed_models.h"
#include "tests/support/seeds.h"

namespace dunlin::testing {
namespace {

using collective::Group;
using collective::GroupAverage;
using collective::GroupAverageOptions;
using collective::GroupChecker;
using collective::GroupSource;
using collective::WorkerLayout;

struct Death {
  int victim = 0;
  long after = 0;  // the number of the act in which it dies
};

constexpr std::uint64_t kUsualSeeds = 300;

class GroupAverageChaosTest : public ::testing::TestWithParam<std::uint64_t> {
 public:
  static void TearDownTestSuite() {
    if (!are_representative(worlds_of_death_, kUsualSeeds)) return;
    // The deaths of masters have to hit workers in all states, and to break groups.
    EXPECT_GT(changes_, worlds_of_death_);
    EXPECT_GT(failures_, worlds_of_death_);
    EXPECT_GT(carried_over_, worlds_of_death_ / 50);
  }

 protected:
  static constexpr std::size_t kCount = 4000;  // a reduce takes long enough for deaths in it

  struct Player {
    std::unique_ptr<GroupAverage> average;
    std::uint64_t iterations = 0;
    std::uint64_t iteration = 0;
    long computes = 0;  // acts until its computation is done
    long slowness = 1;
    bool is_averaging = false;
    bool is_leaving = false;
    bool is_over = false;
    bool is_dead = false;
    long acts = 0;
    std::optional<Group> group;    // that it was in after its last act
    Rank group_from;               // the master at that time
    std::map<int, long> hears_of;  // by dead rank: the act in which this one learns of it
    std::uint64_t groups = 0;      // its statistics after its last act
  };

  static GroupAverageOptions options(std::uint64_t seed, int size) {
    GroupAverageOptions options;
    options.count = kCount;
    constexpr GroupSource kSources[] = {GroupSource::kSmart, GroupSource::kRandom,
                                        GroupSource::kBuffered};
    options.source = kSources[seed % 3];
    const bool has_hosts = size % 2 == 0 && seed % 4 < 2;
    options.groups.layout = has_hosts ? WorkerLayout{2, size / 2} : WorkerLayout{1, size};
    options.groups.group_size = std::clamp(size, 2, 2 + static_cast<int>(seed / 3 % 2));
    options.groups.seed = seed;
    // Many steps per reduce, so that deaths hit all of them.
    options.partial.scratch_bytes = 8 << 10;
    options.partial.segment_bytes = 512;
    return options;
  }

  void run(HostileWorld& world, const std::vector<Death>& deaths) {
    deaths_ = deaths;
    GroupChecker checker(world.size());
    checker_ = &checker;
    const GroupAverageOptions all = options(GetParam(), world.size());
    for (int rank = 0; rank < world.size(); ++rank) {
      Player& player = players_.emplace_back();
      player.average = GroupAverage::create(world.fabric(rank), all).value();
      player.iterations = 4 + world.random()() % 8;
      player.slowness = world.random()() % 4 == 0 ? 40 : 2;
      const std::span<float> model = player.average->model();
      for (std::size_t e = 0; e < model.size(); ++e)
        model[e] = static_cast<float>(MixedModels::initial(static_cast<std::size_t>(rank), e));
    }
    const bool is_finished = world.run([&](int rank) {
      act(world, rank);
      return players_[static_cast<std::size_t>(rank)].is_dead ||
             players_[static_cast<std::size_t>(rank)].is_over;
    });
    ASSERT_TRUE(is_finished) << seed() << "nothing moves any more: " << describe();
  }

  void act(HostileWorld& world, int rank) {
    Player& player = players_[static_cast<std::size_t>(rank)];
    if (player.is_dead || ::testing::Test::HasFatalFailure()) return;
    watch(rank, player);  // the world has progressed the rank's fabric, and so the average
    ++player.acts;
    for (const Death& death : deaths_) {
      if (death.victim != rank || player.acts < death.after) continue;
      die(world, rank);
      return;
    }
    std::erase_if(player.hears_of, [&](const auto& news) {
      if (player.acts < news.second) return false;
      world.fabric(rank).peers().mark(Rank(news.first), PeerState::kDead, "by the test");
      return true;
    });
    move(world, rank, player);
    watch(rank, player);
  }

  void die(HostileWorld& world, int rank) {
    Player& victim = players_[static_cast<std::size_t>(rank)];
    victim.is_dead = true;
    if (victim.group) expect(checker_->exit(Rank(rank), false));
    victim.average.reset();  // its fabric goes on, and would progress it
    for (int other = 0; other < world.size(); ++other) {
      Player& hearing = players_[static_cast<std::size_t>(other)];
      if (other != rank)
        hearing.hears_of[rank] = hearing.acts + 1 + static_cast<long>(world.random()() % 400);
    }
  }

  void move(HostileWorld& world, int rank, Player& player) {
    GroupAverage& average = *player.average;
    if (player.is_averaging || (player.is_leaving && !player.is_over)) {
      const Status status = average.test();
      ASSERT_FALSE(status.is_error()) << seed() << "rank " << rank << ": " << status.to_string();
      if (status.is_busy()) return;
      if (player.is_leaving) {
        player.is_over = true;
        return;
      }
      player.is_averaging = false;
      ++player.iteration;
      player.computes = static_cast<long>(world.random()()) % (10 * player.slowness);
      return;
    }
    average.progress();
    if (player.is_over || player.computes-- > 0) return;
    if (player.iteration == player.iterations) {
      player.is_leaving = true;
      expect(average.leave());
    } else {
      player.is_averaging = true;
      expect(average.start(player.iteration));
    }
  }

  // Checks what the rank's last act has changed: at most one group was begun or ended.
  void watch(int rank, Player& player) {
    const GroupAverage& average = *player.average;
    const Group* const group = average.group();
    const std::uint64_t groups = average.statistics().groups;
    if (player.group && (group == nullptr || *group != *player.group)) {
      const bool is_done = groups > player.groups;
      expect(checker_->exit(Rank(rank), is_done));
      if (is_done) ++reduced_[player.group->sequence].second;
      if (is_done && player.group_from != average.service()->master()) ++carried_over_;
      player.group.reset();
    }
    if (group != nullptr && !player.group) {
      expect(checker_->enter(Rank(rank), *group));
      reduced_[group->sequence].first = group->ranks;
      player.group = *group;
      player.group_from = average.service()->master();
    }
    player.groups = groups;
    if (const auto* const generator = average.service()->generator(); generator != nullptr) {
      expect(checker_->check(*generator));
      if (player.acts % 16 == 0) expect(checker_->check_cycles(*generator));
    }
  }

  void expect(const Status& status) { ASSERT_TRUE(status.is_ok()) << seed() << status.to_string(); }

  std::string seed() const { return fmt::format("seed {}: ", GetParam()); }

  std::string describe() const {
    std::string text;
    for (std::size_t rank = 0; rank < players_.size(); ++rank) {
      const Player& player = players_[rank];
      if (player.is_dead) continue;
      text += fmt::format("\nrank {} iteration {} of {}, master {}{}", rank, player.iteration,
                          player.iterations, player.average->service()->master().value(),
                          player.is_over ? ", is over" : "");
      if (player.group) text += fmt::format(", in group {}", player.group->sequence);
      for (const auto& awaited : player.average->awaited())
        text += fmt::format(", waits for rank {}: {}", awaited.peer.value(), awaited.what);
    }
    return text;
  }

  // Every survivor did all of its iterations, and its model is an average of the initial ones.
  void expect_survivors_are_well() {
    for (std::size_t rank = 0; rank < players_.size(); ++rank) {
      const Player& player = players_[rank];
      if (player.is_dead) continue;
      const auto statistics = player.average->statistics();
      EXPECT_EQ(statistics.iterations, player.iterations) << seed();
      changes_ += statistics.changes;
      failures_ += statistics.failures;
      const std::span<const float> model = std::as_const(*player.average).model();
      for (std::size_t e = 0; e < model.size(); ++e) {
        double least = 1;
        double most = -1;
        for (std::size_t from = 0; from < players_.size(); ++from) {
          least = std::min(least, MixedModels::initial(from, e));
          most = std::max(most, MixedModels::initial(from, e));
        }
        ASSERT_TRUE(model[e] >= least - 1e-5 && model[e] <= most + 1e-5)
            << seed() << "rank " << rank << " element " << e << ": " << model[e];
      }
    }
  }

  // If no rank died, the models are the product of the groups in their order. A group that a worker
  // left without joining it is broken for all members.
  void expect_right_models() {
    MixedModels expected(static_cast<int>(players_.size()));
    for (const auto& [number, group] : reduced_) {
      if (group.second == 0) continue;
      EXPECT_EQ(group.second, group.first.size()) << seed() << "group " << number;
      expected.average(group.first);
    }
    for (std::size_t e = 0; e < kCount; ++e) {
      double before = 0;
      double after = 0;
      for (std::size_t rank = 0; rank < players_.size(); ++rank) {
        const float value = std::as_const(*players_[rank].average).model()[e];
        ASSERT_NEAR(value, expected.value(Rank(static_cast<int>(rank)), e), 1e-5) << seed();
        before += MixedModels::initial(rank, e);
        after += value;
      }
      ASSERT_NEAR(before, after, 1e-4) << seed();
    }
    // Each worker that leaves breaks at most one group of every other one.
    for (const Player& player : players_)
      EXPECT_LT(player.average->statistics().failures, players_.size()) << seed();
  }

  static inline std::uint64_t worlds_of_death_ = 0;
  static inline std::uint64_t changes_ = 0;
  static inline std::uint64_t failures_ = 0;
  static inline std::uint64_t carried_over_ = 0;  // ends of groups of a former master

  std::optional<HostileWorld> world_;  // outlives the players
  std::vector<Player> players_;
  std::vector<Death> deaths_;
  GroupChecker* checker_ = nullptr;
  // The groups by number: the members, and how many of them are done with it.
  std::map<std::uint64_t, std::pair<std::vector<Rank>, std::size_t>> reduced_;
};

TEST_P(GroupAverageChaosTest, EveryModelIsTheProductOfItsGroups) {
  world_.emplace(GetParam(), 1 + static_cast<int>(GetParam() % 6));
  run(*world_, {});
  if (HasFatalFailure()) return;
  expect_right_models();
  expect_survivors_are_well();
}

TEST_P(GroupAverageChaosTest, TrainingSurvivesDeaths) {
  HostileWorld& world = world_.emplace(GetParam(), 3 + static_cast<int>(GetParam() % 5));
  auto& random = world.random();
  ++worlds_of_death_;
  const auto moment = [&] { return 1 + static_cast<long>(random() % 1500); };
  std::vector<Death> deaths;
  switch (GetParam() % 5) {
    case 0:
      deaths = {{0, moment()}};
      break;
    case 1: {  // the master and the next one at once
      const long both = moment();
      deaths = {{0, both}, {1, both}};
      break;
    }
    case 2:
      deaths = {{static_cast<int>(1 + random() % 2), moment()}};
      break;
    case 3:  // one master after the other
      deaths = {{0, moment()}, {1, 300 + moment()}};
      break;
    default:  // all but one, at random moments
      for (int rank = 0; rank + 1 < world.size(); ++rank) deaths.push_back({rank, moment()});
  }
  run(world, deaths);
  if (!HasFatalFailure()) expect_survivors_are_well();
}

INSTANTIATE_TEST_SUITE_P(Seeds, GroupAverageChaosTest,
                         ::testing::Range<std::uint64_t>(0, seeds(kUsualSeeds)),
                         [](const auto& seed) { return std::to_string(seed.param); });

}  // namespace
}  // namespace dunlin::testing
