// The training methods that some ranks of a job make, and others make anew when these have changed:
// over shared memory, with threads as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "collectives/elastic/model_snapshot.h"
#include "tests/collectives/training_support.h"
#include "tests/support/ranks.h"

namespace dunlin::testing {
namespace {

using collective::GroupSource;
using collective::SyncMode;
using training::MethodKind;
using training::MethodOptions;
using training::Synchronizer;

constexpr auto kTimeout = std::chrono::seconds(60);
constexpr std::uint64_t kIterations = 300;

std::vector<Rank> ranks_of(std::initializer_list<int> values) {
  std::vector<Rank> ranks;
  for (const int value : values) ranks.emplace_back(value);
  return ranks;
}

struct Case {
  std::string name;
  MethodOptions options;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& name, MethodKind kind) -> MethodOptions& {
    all.push_back({name, {}});
    all.back().options.kind = kind;
    all.back().options.count = LeastSquares::kUnknowns;
    return all.back().options;
  };
  add("LocalSgd", MethodKind::kLocalSgd).section_length = 4;
  add("NotifyAck", MethodKind::kStochastic).graph = "root-expander";
  add("Bsp", MethodKind::kStochastic).sync = SyncMode::kBsp;
  // No hypercube has three nodes.
  add("NotifyAckResized", MethodKind::kStochastic).graph = "hypercube";
  for (const GroupSource source :
       {GroupSource::kRandom, GroupSource::kBuffered, GroupSource::kSmart})
    add(std::string("Partial_") + to_string(source), MethodKind::kPartial).groups = source;
  return all;
}

class TrainingMembersTest : public ::testing::TestWithParam<Case> {};

// Trains with these members, from `model` on. `place` is this rank's among them.
void train(transport::Fabric& fabric, const MethodOptions& method, std::uint64_t first, int place,
           std::vector<float>& model) {
  const LeastSquares problem(static_cast<int>(method.members.size()));
  auto made = Synchronizer::create(fabric, method, kTimeout);
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  Synchronizer& synchronizer = **made;
  std::ranges::copy(model, synchronizer.parameters().begin());
  for (std::uint64_t t = first; t < first + kIterations; ++t) {
    const auto ended = iterate(
        synchronizer, place, t,
        [&](int worker, std::uint64_t, std::span<const float> x, std::span<float> gradient) {
          problem.gradient(worker, x, gradient);
        },
        0.5F);
    ASSERT_TRUE(ended.is_ok()) << ended.status().to_string();
  }
  // The bootstrap may be used between iterations.
  std::uint64_t epoch = 1;
  const auto ask = [&](transport::Fabric& same) -> Status {
    epoch = same.bootstrap().membership().epoch;
    return Status::ok();
  };
  EXPECT_TRUE(synchronizer.call(ask).is_ok());
  EXPECT_EQ(epoch, 0U);
  const auto fail = [](transport::Fabric&) { return Status(Code::kNotFound, "nothing"); };
  EXPECT_EQ(synchronizer.call(fail).code(), Code::kNotFound);
  const Status left = synchronizer.leave();
  EXPECT_TRUE(left.is_ok()) << left.to_string();
  std::ranges::copy(synchronizer.parameters(), model.begin());
}

TEST_P(TrainingMembersTest, OthersTakeNoPartAndMembersChange) {
  RunOptions run;
  run.size = 5;
  run.configure = [](Config& config) { config.transports = {"shm"}; };
  run_ranks(run, [&](transport::Fabric& fabric) {
    std::vector<float> model(LeastSquares::kUnknowns);
    MethodOptions method = GetParam().options;
    std::uint64_t first = 0;
    int turn = 0;
    for (const auto& members : {ranks_of({1, 3}), ranks_of({1, 2, 3}), ranks_of({2, 4})}) {
      method.members = members;
      method.name = std::to_string(turn);
      const auto place = std::ranges::find(members, fabric.rank()) - members.begin();
      const bool is_member = place < static_cast<std::ptrdiff_t>(members.size());
      if (is_member) train(fabric, method, first, static_cast<int>(place), model);
      first += kIterations;
      const Status met = fabric.bootstrap().barrier("turn " + std::to_string(turn++), kTimeout);
      ASSERT_TRUE(met.is_ok()) << met.to_string();
      // Workers of independent speeds may have met rarely: their models differ more.
      const double limit = GetParam().options.kind == MethodKind::kPartial ? 0.5 : 0.05;
      if (is_member) {
        EXPECT_LT(LeastSquares::error(model), limit) << turn;
      }
      if (fabric.rank() == Rank(0)) {
        EXPECT_EQ(model.front(), 0.0F);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Methods, TrainingMembersTest, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

TEST(TrainingMembersRefusedTest, MethodsThatNeedAllRanksSaySo) {
  RunOptions run;
  run.size = 1;
  run.configure = [](Config& config) { config.transports = {"shm"}; };
  run_ranks(run, [&](transport::Fabric& fabric) {
    for (const MethodKind kind : {MethodKind::kAllReduce, MethodKind::kParameterServer,
                                  MethodKind::kAdPsgd, MethodKind::kPartial}) {
      MethodOptions method;
      method.kind = kind;
      method.groups = GroupSource::kStatic;
      method.count = 3;
      method.members = ranks_of({0});
      EXPECT_FALSE(takes_newcomers(method));
      const auto made = training::prepare_method(fabric, method);
      EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(made.status().to_string(), ::testing::HasSubstr("all ranks of the job"));
    }
  });
}

TEST(PlanHandOversTest, EachNewcomerHasTheNextMemberThatIsNone) {
  const auto members = ranks_of({1, 4, 5, 7});
  const auto plan = collective::plan_hand_overs(members, {false, true, true, false});
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0].newcomer, Rank(4));
  EXPECT_EQ(plan[0].source, Rank(7));
  EXPECT_EQ(plan[1].newcomer, Rank(5));
  EXPECT_EQ(plan[1].source, Rank(7));
  EXPECT_EQ(collective::plan_hand_overs(members, {false, false, false, true})[0].source, Rank(1));
  EXPECT_TRUE(collective::plan_hand_overs(members, {true, true, true, true}).empty());
}

}  // namespace
}  // namespace dunlin::testing
