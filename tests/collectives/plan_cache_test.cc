// The cache of plans keeps those that were used last.
#include <gtest/gtest.h>

#include "collectives/communicator/plan.h"

namespace dunlin::testing {
namespace {

using collective::Plan;
using collective::PlanCache;
using collective::PlanKey;

PlanKey key_of(std::size_t count) {
  return {{collective::Collective::kAllReduce, 4, count, 0}, nullptr, 4};
}

std::shared_ptr<Plan> plan_of(std::size_t count) {
  auto plan = std::make_shared<Plan>();
  plan->key = key_of(count);
  return plan;
}

TEST(PlanCacheTest, DropsThePlanThatWasNotUsedForTheLongestTime) {
  PlanCache cache;
  for (std::size_t count = 0; count < PlanCache::kMostPlans; ++count) cache.insert(plan_of(count));
  const auto shared = cache.find(key_of(1));
  ASSERT_NE(cache.find(key_of(0)), nullptr);  // now plan 2 is the oldest
  cache.insert(plan_of(1'000'000));
  EXPECT_EQ(cache.size(), PlanCache::kMostPlans);
  EXPECT_EQ(cache.find(key_of(2)), nullptr);
  EXPECT_NE(cache.find(key_of(0)), nullptr);
  EXPECT_NE(cache.find(key_of(1'000'000)), nullptr);
  EXPECT_EQ(cache.find(key_of(1)), shared);
}

}  // namespace
}  // namespace dunlin::testing
