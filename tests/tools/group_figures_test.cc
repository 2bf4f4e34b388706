// The model of the heterogeneity experiments: times that can be computed by hand, and the results
// of the paper on partial all-reduce.
#include "tools/dunlin-sim/groups/figures.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dunlin::simulate {
namespace {

using namespace std::chrono_literals;

TEST(FluidNetwork, SharesALinkFairly) {
  FluidNetwork network;
  const auto narrow = network.add_link(10);
  const auto wide = network.add_link(100);
  std::vector<double> ends;
  const auto end = [&] { ends.push_back(network.now()); };
  // Two transfers share 10 bytes per second. The third takes what they leave of the wide link.
  network.transfer(10, {narrow, wide}, end);
  network.transfer(20, {narrow, wide}, end);
  network.transfer(180, {wide}, end);
  while (network.step()) {
  }
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_NEAR(ends[0], 2, 1e-9);  // 10 bytes at 5 per second
  EXPECT_NEAR(ends[1], 2, 1e-9);  // 180 bytes at 90 per second
  EXPECT_NEAR(ends[2], 3, 1e-9);  // the other 10 bytes at 10 per second
}

// Rates are assigned again only on links that flows connect to a changed one: here through the
// second transfer, and not on the separate link.
TEST(FluidNetwork, AnEndIsFeltAsFarAsFlowsConnectLinks) {
  FluidNetwork network;
  const auto narrow = network.add_link(30);
  const auto wide = network.add_link(100);
  const auto apart = network.add_link(10);
  double ends[4] = {};
  const auto end_of = [&](int which) { return [&, which] { ends[which] = network.now(); }; };
  network.transfer(15, {narrow}, end_of(0));        // 15 per second
  network.transfer(45, {narrow, wide}, end_of(1));  // 15, then 30
  network.transfer(155, {wide}, end_of(2));         // 85, then 70
  network.transfer(30, {apart}, end_of(3));         // 10
  while (network.step()) {
  }
  EXPECT_NEAR(ends[0], 1, 1e-9);
  EXPECT_NEAR(ends[1], 2, 1e-9);
  EXPECT_NEAR(ends[2], 2, 1e-9);
  EXPECT_NEAR(ends[3], 3, 1e-9);
}

TEST(FluidNetwork, AMentionMoreTakesTheRateOnceMore) {
  FluidNetwork network;
  const auto link = network.add_link(10);
  double end = 0;
  network.transfer(10, {link, link}, [&] { end = network.now(); });
  while (network.step()) {
  }
  EXPECT_NEAR(end, 2, 1e-9);
}

// Without spread, latencies and messages, iterations take the times of the formulas.
GroupSetting plain() {
  GroupSetting setting;
  setting.model_bytes = 8e6;
  setting.compute = 10ms;
  setting.compute_spread = 0;
  setting.between = {0ns, 4e9};
  setting.within = {0ns, 16e9};
  setting.message = 0ns;
  setting.iterations = 40;
  return setting;
}

double seconds_of(const GroupSetting& setting, GroupMethod method, const Slowdown& slowdown = {}) {
  const auto measured = measure_method(setting, method, slowdown);
  EXPECT_TRUE(measured.is_ok()) << measured.status().to_string();
  return setting.layout.workers() / measured.value();
}

TEST(GroupMethods, TakeWhatTheLinksGive) {
  const GroupSetting setting = plain();
  // The ring goes through every NIC once, with 2 * 15 / 16 of the model.
  EXPECT_NEAR(seconds_of(setting, GroupMethod::kAllReduce), 10e-3 + 2 * 15 / 16. * 2e-3, 1e-6);
  // Twelve models enter the server's NIC, then twelve leave it.
  EXPECT_NEAR(seconds_of(setting, GroupMethod::kParameterServer), 10e-3 + 2 * 12 * 2e-3, 1e-6);
  // A slow worker slows all down.
  EXPECT_NEAR(seconds_of(setting, GroupMethod::kAllReduce, {5, false}), 60e-3 + 2 * 15 / 16. * 2e-3,
              1e-6);
}

TEST(GroupMethods, GiveTheSameTwiceAndOtherwiseForAnotherSeed) {
  GroupSetting setting;
  setting.iterations = 60;
  for (const GroupMethod method : kGroupMethods) {
    const double once = seconds_of(setting, method, {2, true});
    EXPECT_EQ(seconds_of(setting, method, {2, true}), once) << to_string(method);
    GroupSetting other = setting;
    other.seed = 2;
    EXPECT_NE(seconds_of(other, method, {2, true}), once) << to_string(method);
  }
}

TEST(GroupMethods, RefuseWhatTakesNoTime) {
  GroupSetting setting = plain();
  setting.compute = 0ns;
  setting.between.bandwidth = setting.within.bandwidth = 0;
  for (const GroupMethod method : kGroupMethods)
    EXPECT_EQ(measure_method(setting, method, {}).status().code(), Code::kInvalidArgument)
        << to_string(method);
}

TEST(GroupMethods, RulesBeyondThePaperCanBeLeftOut) {
  GroupSetting setting;
  const double ours = seconds_of(setting, GroupMethod::kSmart, {5, false});
  setting.intra_filter = false;
  const double unfiltered = seconds_of(setting, GroupMethod::kSmart, {5, false});
  EXPECT_NE(unfiltered, ours);
  setting.most_alone = 0;
  EXPECT_NE(seconds_of(setting, GroupMethod::kSmart, {5, false}), unfiltered);
}

TEST(GroupMethods, WorkOnAnyCluster) {
  for (const collective::WorkerLayout layout :
       {collective::WorkerLayout{1, 2}, {1, 5}, {3, 1}, {2, 3}, {8, 4}}) {
    GroupSetting setting;
    setting.layout = layout;
    setting.group_size = 2;
    setting.slow_worker = 0;
    setting.iterations = 20;
    for (const GroupMethod method : kGroupMethods) {
      EXPECT_TRUE(measure_method(setting, method, {5, false}).is_ok())
          << layout.hosts << " x " << layout.workers_per_host << ' ' << to_string(method);
    }
  }
}

TEST(GroupFigures, SmartGroupsBearASlowWorkerAndLoseNothingWithoutOne) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    GroupSetting setting;
    setting.seed = seed;
    const auto points = make_group_figures(setting, {2, 5});
    ASSERT_TRUE(points.is_ok()) << points.status().to_string();
    const auto find = [&](double factor, GroupMethod method) {
      return *std::find_if(points->begin(), points->end(), [&](const GroupPoint& point) {
        return point.slowdown.factor == factor && !point.slowdown.is_random &&
               point.method == method;
      });
    };
    EXPECT_GE(find(5, GroupMethod::kSmart).over_all_reduce, 4.4) << "seed " << seed;
    EXPECT_GE(find(2, GroupMethod::kSmart).over_all_reduce, 2);
    EXPECT_GE(find(0, GroupMethod::kSmart).over_all_reduce, 1);
    EXPECT_GE(find(0, GroupMethod::kStatic).over_all_reduce, 1);
    // The static schedule does not tolerate a slow worker.
    EXPECT_LT(find(5, GroupMethod::kStatic).over_all_reduce, 1.2);
    EXPECT_EQ(find(0, GroupMethod::kSmart).paper->per_iteration, 5.10);
    EXPECT_EQ(find(0, GroupMethod::kSmart).paper->overall, 5.26);
    EXPECT_FALSE(find(2, GroupMethod::kSmart).paper->per_iteration);
    EXPECT_FALSE(find(5, GroupMethod::kSmart).paper);
    EXPECT_EQ(to_json(*points).size(), points->size());
    EXPECT_NE(to_text(*points).find("one worker slowed 5x"), std::string::npos);
    for (const auto& row : to_json(*points))
      EXPECT_EQ(row.contains("figure"), row.at("slowed") != "random");
  }
}

TEST(GroupFigures, ThePaperHasNumbersOfItsClusterOnly) {
  GroupSetting setting;
  setting.layout = {2, 4};
  setting.iterations = 20;
  const auto points = make_group_figures(setting, {2});
  ASSERT_TRUE(points.is_ok()) << points.status().to_string();
  for (const GroupPoint& point : *points) EXPECT_FALSE(point.paper);
}

}  // namespace
}  // namespace dunlin::simulate
