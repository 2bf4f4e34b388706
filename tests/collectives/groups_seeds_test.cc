#include <gtest/gtest.h>

#include <iterator>

#include "tests/collectives/groups_world.h"
#include "tests/support/group_matrix.h"
#include "tests/support/seeds.h"

namespace dunlin::collective {
namespace {

using testing::PartialSetting;
using testing::PartialWorld;

PartialSetting setting_of(std::uint64_t seed) {
  GroupRandom random(seed);
  PartialSetting setting;
  setting.seed = random.next();
  GroupOptions& options = setting.options;
  options.seed = random.next();
  options.policy = kGroupPolicies[random.below(std::size(kGroupPolicies))];
  options.layout.hosts = 1 + static_cast<int>(random.below(4));
  options.layout.workers_per_host = 1 + static_cast<int>(random.below(4));
  const int workers = options.layout.workers();
  if (workers > 1)
    options.group_size = 2 + static_cast<int>(random.below(static_cast<std::size_t>(workers - 1)));
  options.slowdown_threshold = 1 + random.below(5);
  options.inter_intra = random.below(3) != 0;
  setting.iterations = 2 + random.below(5);
  setting.longest_message = random.below(3) == 0 ? 30 : 4;
  if (random.below(2) == 0)
    setting.slow = static_cast<int>(random.below(static_cast<std::size_t>(workers)));
  for (std::size_t deaths = random.below(3); deaths > 0; --deaths)
    setting.deaths.push_back(
        {static_cast<int>(random.below(static_cast<std::size_t>(workers))), random.below(120)});
  setting.repeats_asks = random.below(2) == 0;
  return setting;
}

TEST(PartialSeeds, NothingCollidesHangsOrWaitsInACycle) {
  const std::uint64_t seeds = dunlin::testing::seeds(10'000);
  std::uint64_t steps = 0;
  std::uint64_t broken = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    PartialWorld world(setting_of(seed));
    const Status status = world.run();
    ASSERT_TRUE(status.is_ok()) << "seed " << seed << ": " << status.to_string();
    steps += world.steps();
    broken += world.broken();
  }
  // There were enough steps and broken groups.
  EXPECT_GT(steps, 100 * seeds);
  EXPECT_GT(broken, seeds / 4);
}

}  // namespace
}  // namespace dunlin::collective
