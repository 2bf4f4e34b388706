// The symbolic checker accepts every algorithm for 1 to 64 ranks and all shapes, and finds the
// mistakes in wrong schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/schedule/check.h"
#include "collectives/schedule/choose.h"

namespace dunlin::collective {
namespace {

std::vector<Program> generate_all(const Algorithm& algorithm, const Problem& problem,
                                  const Shape& shape) {
  std::vector<Program> programs;
  for (int rank = 0; rank < problem.size; ++rank)
    programs.push_back(generate(algorithm, problem, shape, rank).value());
  return programs;
}

struct Case {
  Problem problem;
  Shape shape;
  std::string text;
};

void expect_right(const Algorithm& algorithm, const Problem& problem, const Shape& shape,
                  const std::string& text) {
  const std::vector<Program> programs = generate_all(algorithm, problem, shape);
  for (const Program& program : programs) {
    ASSERT_LE(program.scratch, shape.scratch) << algorithm.name << text;
    ASSERT_TRUE(algorithm.needs_mapped_peers || !program.needs_mapped_peers()) << algorithm.name;
  }
  for (const bool in_place : {false, true}) {
    if (in_place && problem.collective == Collective::kAllToAll) continue;
    const auto checked = check(problem, programs, in_place);
    ASSERT_TRUE(checked.is_ok()) << to_string(problem.collective) << " " << algorithm.name << ", "
                                 << problem.size << " ranks, " << problem.count << " elements"
                                 << text << (in_place ? ", in place: " : ": ")
                                 << checked.status().to_string();
    // What the algorithm claims must hold. It may have more properties than it claims.
    EXPECT_TRUE(checked->is_synchronizing || !algorithm.is_synchronizing) << algorithm.name;
    EXPECT_TRUE(checked->is_polite || !algorithm.is_polite) << algorithm.name;
  }
}

std::size_t scratch_of(const Algorithm& algorithm, const Problem& problem, const Shape& shape) {
  std::size_t most = 0;
  for (const Program& program : generate_all(algorithm, problem, shape))
    most = std::max(most, program.scratch);
  return most;
}

class ScheduleCheck : public ::testing::TestWithParam<int> {};

TEST_P(ScheduleCheck, EveryAlgorithmIsRight) {
  const int size = GetParam();
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.needs_groups) continue;
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{37},
                                    static_cast<std::size_t>(size) * 300 + 7}) {
      if (algorithm.collective == Collective::kBarrier && count > 0) continue;
      for (const int root : {0, size - 1}) {
        const Problem problem{algorithm.collective, size, count, root};
        if (root != 0 && !problem.is_rooted()) continue;
        expect_right(algorithm, problem, {}, "");
      }
    }
  }
}

class LongSchedules : public ::testing::TestWithParam<int> {};

TEST_P(LongSchedules, InSegmentsAndSlices) {
  const int size = GetParam();
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.needs_groups || algorithm.collective == Collective::kBarrier) continue;
    const Problem problem{algorithm.collective, size,
                          algorithm.collective == Collective::kAllReduce
                              ? static_cast<std::size_t>(size) * 600 + 11
                              : std::size_t{611},
                          size / 2};
    Shape segmented;
    segmented.segment = 250;
    expect_right(algorithm, problem, segmented, ", in segments");
    // There is so little scratch that the operation takes about four slices.
    Shape sliced;
    sliced.scratch = scratch_of(algorithm, problem, {}) / 2 + 80'000;
    expect_right(algorithm, problem, sliced, ", in slices");
  }
}

TEST_P(ScheduleCheck, EveryNumberOfGroupsAndEveryGrid) {
  const int size = GetParam();
  const std::size_t count = static_cast<std::size_t>(size) * 3 + 2;
  const Problem problem{Collective::kAllReduce, size, count, 0};
  for (int groups = 1; groups <= size; ++groups) {
    const Grouping grouping = Grouping::even(size, groups).value();
    Shape shape;
    shape.groups = &grouping;
    const std::string text = ", " + std::to_string(groups) + " groups";
    expect_right(*find_algorithm(Collective::kAllReduce, "hierarchical").value(), problem, shape,
                 text);
    const Algorithm& tga = *find_algorithm(Collective::kAllReduce, "2d-tga").value();
    for (int rows = 1; rows <= groups; ++rows) {
      if (groups % rows != 0) continue;
      shape.grid = {rows, groups / rows};
      expect_right(tga, problem, shape, text + " in " + std::to_string(rows) + " rows");
    }
  }
  for (int rows = 1; rows <= size; ++rows) {
    if (size % rows != 0) continue;
    Shape shape;
    shape.grid = {rows, size / rows};
    for (const char* const name : {"torus-2d", "mesh-2d"}) {
      expect_right(*find_algorithm(Collective::kAllReduce, name).value(), problem, shape,
                   ", " + std::to_string(rows) + " rows");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ScheduleCheck, ::testing::Range(1, 65));
INSTANTIATE_TEST_SUITE_P(Ranks, LongSchedules,
                         ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 31, 33, 48, 64));

// One rank works for all.
TEST(ScheduleCheckGroups, RanksThatShareAGpu) {
  Shape shape;
  shape.is_one_gpu = true;
  for (int size = 2; size <= 9; ++size) {
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.name != "shared") continue;
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
        for (const int root : {0, size - 1}) {
          const Problem problem{algorithm.collective, size, count, root};
          expect_right(algorithm, problem, shape, ", on GPUs");
          int workers = 0;
          for (const Program& program : generate_all(algorithm, problem, shape)) {
            workers += std::ranges::any_of(program.steps, [](const Step& step) {
              return step.kind == StepKind::kReduce && step.count > 0;
            });
          }
          if (count == 5000) {
            EXPECT_EQ(workers, 1);
          }
        }
      }
    }
  }
}

TEST(ScheduleCheckGroups, OfAnyRanks) {
  // Hosts with different numbers of ranks, which are not consecutive.
  const std::vector<int> host_of{7, 3, 7, 9, 3, 7, 7, 9, 1, 7, 3};
  const Grouping grouping = Grouping::of(host_of);
  ASSERT_EQ(grouping.groups(), 4);
  EXPECT_EQ(grouping.leader(1), 1);
  Shape shape;
  shape.groups = &grouping;
  for (const char* const name : {"hierarchical", "2d-tga"}) {
    for (const std::size_t count : {0, 1, 64, 5000}) {
      expect_right(*find_algorithm(Collective::kAllReduce, name).value(),
                   {Collective::kAllReduce, 11, count, 0}, shape, "");
    }
  }
}

// Mistakes that the checker must find. Each test breaks one thing in a correct schedule.
class Broken : public ::testing::Test {
 protected:
  static constexpr int kSize = 4;
  std::string verdict() const {
    const auto checked = check(problem_, programs_, false);
    return std::string(checked.is_ok() ? "right" : checked.status().message());
  }
  Step& first(int rank, StepKind kind) {
    for (Step& step : programs_[static_cast<std::size_t>(rank)].steps) {
      if (step.kind == kind) return step;
    }
    throw std::logic_error("no such step");
  }
  Problem problem_{Collective::kAllReduce, kSize, 1000, 0};
  std::vector<Program> programs_ =
      generate_all(*find_algorithm(Collective::kAllReduce, "ring").value(), problem_, {});
};

TEST_F(Broken, NothingIs) {
  EXPECT_EQ(verdict(), "right");
}
TEST_F(Broken, AContributionTwice) {
  Program& program = programs_[1];
  const Step& reduce = first(1, StepKind::kReduce);
  program.all_operands[reduce.operands + 1] = program.all_operands[reduce.operands];
  EXPECT_THAT(verdict(), ::testing::HasSubstr("twice"));
}
TEST_F(Broken, AMessageTooFew) {
  auto& steps = programs_[2].steps;
  steps.erase(steps.begin());
  EXPECT_THAT(verdict(), ::testing::HasSubstr("expects other bytes"));
}
TEST_F(Broken, AWaitTooFew) {
  auto& steps = programs_[2].steps;
  steps.erase(std::ranges::find(steps, StepKind::kWait, &Step::kind));
  EXPECT_NE(verdict(), "right");
}
TEST_F(Broken, EverybodyWaitsFirst) {
  for (Program& program : programs_) {
    std::ranges::stable_partition(program.steps,
                                  [](const Step& step) { return step.kind == StepKind::kWait; });
  }
  EXPECT_THAT(verdict(), ::testing::HasSubstr("no rank sends"));
}
TEST_F(Broken, ASlotUsedAgainTooSoon) {
  // All ranks put at once into the same slot of rank 0, which waits for one after the other.
  programs_ = generate_all(*find_algorithm(Collective::kAllReduce, "direct").value(), problem_, {});
  for (int rank = 1; rank < kSize; ++rank) {
    Program& program = programs_[static_cast<std::size_t>(rank)];
    for (const Step& step : program.steps) {
      if (step.kind != StepKind::kPut || program.peers[static_cast<std::size_t>(step.peer)] != 0)
        continue;
      program.all_operands[step.operands + 1].offset = 0;
    }
  }
  for (const Step& step : programs_[0].steps) {
    if (step.kind == StepKind::kWait) programs_[0].all_operands[step.operands].offset = 0;
  }
  EXPECT_NE(verdict(), "right");
}
TEST_F(Broken, FinishedTwice) {
  for (Step& step : programs_[0].steps) step.finishes = step.kind == StepKind::kReduce;
  EXPECT_THAT(verdict(), ::testing::HasSubstr("finished"));
}
TEST_F(Broken, NotFinished) {
  for (Step& step : programs_[3].steps) step.finishes = false;
  EXPECT_NE(verdict(), "right");
}
TEST_F(Broken, BeyondTheEnd) {
  problem_.count = 900;
  EXPECT_THAT(verdict(), ::testing::HasSubstr("beyond the end"));
}
TEST_F(Broken, APeersOutputBeforeItHasEntered) {
  programs_ = generate_all(*find_algorithm(Collective::kAllGather, "ring").value(),
                           problem_ = {Collective::kAllGather, kSize, 100, 0}, {});
  for (Program& program : programs_) {
    std::erase_if(program.steps, [](const Step& step) {
      return step.kind == StepKind::kSignal || step.stream == Stream::kControl;
    });
  }
  EXPECT_THAT(verdict(), ::testing::HasSubstr("entered"));
}
TEST_F(Broken, ASourceOverwrittenWhileItIsSent) {
  const Grouping grouping = Grouping::even(kSize, 2).value();
  Shape shape;
  shape.groups = &grouping;
  programs_ = generate_all(*find_algorithm(Collective::kAllReduce, "hierarchical").value(),
                           problem_, shape);
  ASSERT_EQ(verdict(), "right");
  for (Program& program : programs_)
    std::erase_if(program.steps, [](const Step& step) { return step.kind == StepKind::kDrain; });
  EXPECT_THAT(verdict(), ::testing::HasSubstr("not ordered"));
}

TEST(Algorithms, AreFoundByName) {
  EXPECT_EQ(find_algorithm(Collective::kBarrier, "dissemination").value()->name, "dissemination");
  const auto missing = find_algorithm(Collective::kAllReduce, "rings");
  ASSERT_EQ(missing.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(missing.status().message(), ::testing::HasSubstr("halving-doubling"));
}

// The rows of a grid are groups of consecutive ranks, all of one size.
TEST(Grouping, IsAGridIfItsGroupsAreAlike) {
  const auto grid_of = [](std::vector<int> group_of) { return Grouping::of(group_of).as_grid(); };
  const auto two_by_three = grid_of({0, 0, 0, 1, 1, 1});
  ASSERT_TRUE(two_by_three);
  EXPECT_EQ(two_by_three->rows, 2);
  EXPECT_EQ(two_by_three->columns, 3);
  EXPECT_FALSE(grid_of({0, 0, 0, 0}));        // one group
  EXPECT_FALSE(grid_of({0, 1, 2, 3}));        // one rank each
  EXPECT_FALSE(grid_of({0, 0, 0, 1}));        // unequal
  EXPECT_FALSE(grid_of({0, 0, 1, 1, 1, 2}));  // unequal, with the right sum
  EXPECT_FALSE(grid_of({0, 1, 0, 1}));        // not consecutive
}

TEST(Algorithms, ATorusFollowsTheHosts) {
  const Algorithm& torus = *find_algorithm(Collective::kAllReduce, "torus-2d").value();
  const Problem problem{Collective::kAllReduce, 8, 8000, 0};
  const auto peers_of_0 = [&](const Shape& shape) {
    std::vector<int> peers = generate(torus, problem, shape, 0).value().peers;
    std::ranges::sort(peers);
    return peers;
  };
  EXPECT_EQ(peers_of_0({}), (std::vector{1, 3, 4}));                 // 2 x 4
  EXPECT_EQ(peers_of_0({.hosts = {4, 2}}), (std::vector{1, 2, 6}));  // 4 hosts of 2 ranks
  EXPECT_EQ(peers_of_0({.grid = {2, 4}, .hosts = {4, 2}}), (std::vector{1, 3, 4}));
  const auto wrong = generate(torus, problem, {.hosts = {3, 2}}, 0);
  EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
}

// Over tcp, a system call costs more than the bytes of a small message.
TEST(Algorithms, CostlyMessagesAreFew) {
  const auto all_reduce_of = [](std::size_t bytes, const Connections& connections) {
    return choose_algorithm({Collective::kAllReduce, 8, bytes, 0}, 1, connections)->name;
  };
  const Connections alone{.has_costly_messages = true};
  const Connections shared{.hosts = {2, 4}, .has_costly_messages = true};
  EXPECT_EQ(all_reduce_of(4, {}), "direct");
  EXPECT_EQ(all_reduce_of(4, {.hosts = {2, 4}}), "direct");
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{4096}, std::size_t{24} << 10})
    EXPECT_EQ(all_reduce_of(bytes, alone), "recursive-doubling") << bytes;
  EXPECT_EQ(all_reduce_of(4, shared), "recursive-doubling");
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{32} << 10})
    EXPECT_EQ(all_reduce_of(bytes, shared), "tree") << bytes;
  const Connections odd{.hosts = {2, 3}, .has_costly_messages = true};
  EXPECT_EQ(choose_algorithm({Collective::kAllReduce, 6, 1024, 0}, 1, odd)->name,
            "recursive-doubling");
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{64} << 20}) {
    EXPECT_EQ(all_reduce_of(bytes, alone), all_reduce_of(bytes, {})) << bytes;
    EXPECT_EQ(all_reduce_of(bytes, shared), all_reduce_of(bytes, {.hosts = {2, 4}})) << bytes;
  }
  EXPECT_EQ(all_reduce_of(4, {.is_all_mapped = true, .has_costly_messages = true}), "direct");
}

// This holds for few ranks that map one another's memory. Signals to many ranks would take longer
// than the hops of a dissemination.
TEST(Algorithms, ABarrierOfOneHostIsOneHop) {
  const auto barrier_of = [](int size, bool is_all_mapped) {
    return choose_algorithm({Collective::kBarrier, size, 0, 0}, 4, {is_all_mapped})->name;
  };
  EXPECT_EQ(barrier_of(4, true), "direct");
  EXPECT_EQ(barrier_of(4, false), "dissemination");
  EXPECT_EQ(barrier_of(100, true), "dissemination");
  const Algorithm& direct = *find_algorithm(Collective::kBarrier, "direct").value();
  for (const Program& program : generate_all(direct, {Collective::kBarrier, 4, 0, 0}, {})) {
    bool has_waited = false;
    for (const Step& step : program.steps) {
      EXPECT_FALSE(has_waited && step.kind == StepKind::kSignal);
      has_waited = has_waited || step.kind == StepKind::kWait;
    }
    EXPECT_EQ(program.steps.size(), 6u);  // three signals and three waits
  }
}

TEST(Algorithms, SayWhatDoesNotSuit) {
  const Problem problem{Collective::kAllReduce, 12, 100, 0};
  const Algorithm& tga = *find_algorithm(Collective::kAllReduce, "2d-tga").value();
  EXPECT_EQ(generate(tga, problem, {}, 0).status().code(), Code::kInvalidArgument);
  const Grouping grouping = Grouping::even(12, 6).value();
  Shape shape;
  shape.groups = &grouping;
  shape.grid = {2, 2};
  EXPECT_THAT(generate(tga, problem, shape, 0).status().message(),
              ::testing::HasSubstr("2 x 2 does not fit 6 groups"));
  EXPECT_EQ(generate(tga, problem, shape, 12).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Grouping::even(3, 4).status().code(), Code::kInvalidArgument);
}

TEST(Parts, CoverTheWholeOnce) {
  for (const std::size_t count : {0u, 1u, 7u, 100u, 4095u, 1000003u}) {
    for (const int parts : {1, 2, 3, 7, 64}) {
      std::size_t at = 5;
      for (int i = 0; i < parts; ++i) {
        const Range part = part_of({5, count}, parts, i);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.count, longest_part(count, parts));
        at = part.end();
      }
      EXPECT_EQ(at, 5 + count);
    }
  }
}

}  // namespace
}  // namespace dunlin::collective
