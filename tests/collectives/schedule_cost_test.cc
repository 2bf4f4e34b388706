// Compares the cost model with closed forms, and with schedules that are small enough to count by
// hand.
#include "collectives/schedule/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "collectives/schedule/algorithm.h"
#include "collectives/schedule/closed_form.h"

namespace dunlin::collective {
namespace {

constexpr std::size_t kElement = 4;
// Powers of two have exact sums.
constexpr LinkCost kNear{0x1p-22, 0x1p-36};
constexpr LinkCost kFar{0x1p-19, 0x1p-32};
constexpr double kGamma = 0x1p-34;

std::vector<Program> generate_all(std::string_view name, int ranks, std::size_t count,
                                  const Shape& shape = {},
                                  Collective collective = Collective::kAllReduce) {
  const Algorithm& algorithm = *find_algorithm(collective, name).value();
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(generate(algorithm, {collective, ranks, count, 0}, shape, rank).value());
  return programs;
}

double predicted(std::string_view name, int ranks, std::size_t count, const Shape& shape = {},
                 const CostModel& model = CostModel::uniform(kFar, kGamma)) {
  return predict(generate_all(name, ranks, count, shape), kElement, model).value().seconds;
}

ClosedFormCase case_of(int ranks, std::size_t count) {
  ClosedFormCase of;
  of.ranks = ranks;
  of.bytes = static_cast<double>(count * kElement);
  of.within = kNear;
  of.between = kFar;
  of.gamma = kGamma;
  return of;
}

// All parts and halves in the test cases are equal and consist of whole cache lines.
std::size_t even_count(int parts) {
  return static_cast<std::size_t>(parts) * 512;
}

void expect_same(double prediction, double formula, const std::string& text) {
  EXPECT_NEAR(prediction, formula, 1e-12 * formula) << text;
}

class ClosedForms : public ::testing::TestWithParam<int> {};

TEST_P(ClosedForms, AreWhatSchedulesTake) {
  const int ranks = GetParam();
  const auto pairs = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  for (const char* const name :
       {"ring", "tree", "direct", "recursive-doubling", "halving-doubling", "shared"}) {
    const std::size_t count = even_count(ranks * pairs);
    expect_same(predicted(name, ranks, count), closed_form(name, case_of(ranks, count)).value(),
                std::string(name) + ", " + std::to_string(ranks) + " ranks");
  }
}

TEST_P(ClosedForms, OfEveryGrid) {
  const int ranks = GetParam();
  for (int rows = 1; rows <= ranks; ++rows) {
    if (ranks % rows != 0) continue;
    Shape shape;
    shape.grid = {rows, ranks / rows};
    const std::size_t count = even_count(ranks);
    ClosedFormCase of = case_of(ranks, count);
    of.grid = shape.grid;
    expect_same(predicted("torus-2d", ranks, count, shape), closed_form("torus-2d", of).value(),
                std::to_string(rows) + " rows of " + std::to_string(ranks) + " ranks");
  }
}

TEST_P(ClosedForms, OfEveryGrouping) {
  const int ranks = GetParam();
  for (int groups = 1; groups <= ranks; ++groups) {
    if (ranks % groups != 0) continue;
    const Grouping grouping = Grouping::even(ranks, groups).value();
    const CostModel model = CostModel::grouped(grouping, kNear, kFar, kGamma);
    Shape shape;
    shape.groups = &grouping;
    const std::size_t count = even_count(ranks);
    ClosedFormCase of = case_of(ranks, count);
    of.groups = groups;
    const std::string text =
        std::to_string(groups) + " groups of " + std::to_string(ranks) + " ranks";
    expect_same(predicted("hierarchical", ranks, count, shape, model),
                closed_form("hierarchical", of).value(), text);
    for (int rows = 1; rows <= groups; ++rows) {
      if (groups % rows != 0) continue;
      of.grid = shape.grid = {rows, groups / rows};
      expect_same(predicted("2d-tga", ranks, count, shape, model),
                  closed_form("2d-tga", of).value(), text + ", rows: " + std::to_string(rows));
    }
  }
}

// Parts exceed those of the formula by less than the number of elements that they are rounded to.
TEST_P(ClosedForms, OfUnevenPartsNearly) {
  const int ranks = GetParam();
  const std::size_t count = 1'000'003;
  for (const char* const name : {"ring", "torus-2d", "halving-doubling"}) {
    const double formula = closed_form(name, case_of(ranks, count)).value();
    EXPECT_NEAR(predicted(name, ranks, count), formula, 0.01 * formula) << name << " " << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ClosedForms, ::testing::Range(2, 49));

TEST(ClosedForm, OfUnevenGroupsIsThatOfTheLargest) {
  for (const int groups : {3, 5, 7, 9}) {
    const int ranks = 32;
    const Grouping grouping = Grouping::even(ranks, groups).value();
    Shape shape;
    shape.groups = &grouping;
    const std::size_t count = 900'000;
    ClosedFormCase of = case_of(ranks, count);
    of.groups = groups;
    of.within = kFar;
    for (const char* const name : {"hierarchical", "2d-tga"}) {
      const double formula = closed_form(name, of).value();
      const double prediction = predicted(name, ranks, count, shape);
      EXPECT_LT(prediction, formula * 1.01) << name << " " << groups;
      EXPECT_GT(prediction, formula * 0.85) << name << " " << groups;
    }
  }
}

// Section 5.1 of the 2D-TGA paper, literally.
TEST(ClosedForm, OfTheRingIsThePapers) {
  const int n = 12;
  const std::size_t count = even_count(n);
  const double s = static_cast<double>(count * kElement);
  const double b = 1 / kFar.beta;
  const double c = kGamma;
  const double paper = 2 * (n - 1) * (kFar.alpha + s / (b * n)) + (n - 1) * s * c / n;
  expect_same(predicted("ring", n, count), paper, "ring");
}

// With latencies alone, the time is the number of messages that follow one another.
TEST(ClosedForm, CountsSteps) {
  ClosedFormCase of;
  of.between = of.within = {1, 0};
  of.bytes = 1;
  of.ranks = 64;
  of.groups = 16;
  EXPECT_EQ(closed_form("ring", of).value(), 2 * 63);
  EXPECT_EQ(closed_form("torus-2d", of).value(), 4 * (8 - 1));
  EXPECT_EQ(closed_form("hierarchical", of).value(), 2 * 3 + 2 * 15 + 2);
  EXPECT_EQ(closed_form("2d-tga", of).value(), 2 * 3 + 4 * 3 + 2);
  EXPECT_EQ(closed_form("halving-doubling", of).value(), 12);
  EXPECT_EQ(closed_form("recursive-doubling", of).value(), 6);
  EXPECT_EQ(closed_form("tree", of).value(), 12);
  EXPECT_EQ(closed_form("direct", of).value(), 1);
}

TEST(ClosedForm, RefusesWhatHasNone) {
  ClosedFormCase of = case_of(8, 100);
  EXPECT_EQ(closed_form("mesh-2d", of).status().code(), Code::kNotFound);
  of.groups = 9;
  EXPECT_EQ(closed_form("2d-tga", of).status().code(), Code::kInvalidArgument);
  of.groups = 4;
  of.grid = {3, 2};
  EXPECT_EQ(closed_form("2d-tga", of).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(closed_form("torus-2d", of).status().code(), Code::kInvalidArgument);
}

// Rank 0 puts 10 elements to rank 1, which adds them to its own and signals back.
std::vector<Program> exchange() {
  ProgramBuilder first(0, 2);
  first.put(input_at(0), 1, {BufferKind::kScratch, 0, kSelf}, 10);
  first.wait_signal(1);
  ProgramBuilder second(1, 2);
  const Place arrived = second.scratch(10);
  second.wait(0, arrived, 10);
  const Place inputs[] = {input_at(0), arrived};
  const Place sum = output_at(0);
  second.reduce(inputs, {&sum, 1}, 10);
  second.signal(0);
  std::vector<Program> programs;
  programs.push_back(first.take());
  programs.push_back(second.take());
  return programs;
}

TEST(Predict, AnExchangeByHand) {
  const auto programs = exchange();
  const auto report = predict(programs, 4, CostModel::uniform({100, 2}, 3));
  ASSERT_TRUE(report.is_ok());
  // 80 for the put, 100 until it arrives, 120 for the reduction, 100 for the signal.
  EXPECT_EQ(report->seconds, 400);
  EXPECT_THAT(report->rank_seconds, ::testing::ElementsAre(400, 300));
  EXPECT_EQ(report->links[0].puts, 1u);
  EXPECT_EQ(report->links[0].signals, 1u);
  EXPECT_EQ(report->links[0].bytes, 40u);
  EXPECT_EQ(report->reduced_bytes, 40u);
  EXPECT_EQ(report->end({0, 0}), 80);
  EXPECT_EQ(report->begin({1, 1}), 180);
  std::vector<std::pair<int, std::size_t>> path;
  for (const StepId& id : report->critical_path) path.emplace_back(id.rank, id.index);
  EXPECT_THAT(path, ::testing::ElementsAre(std::pair(0, 0u), std::pair(1, 0u), std::pair(1, 1u),
                                           std::pair(1, 2u), std::pair(0, 1u)));
}

TEST(Predict, LinksByClass) {
  const Grouping grouping = Grouping::even(6, 2).value();
  Shape shape;
  shape.groups = &grouping;
  const std::size_t count = even_count(6);
  const auto report = predict(generate_all("hierarchical", 6, count, shape), kElement,
                              CostModel::grouped(grouping, kNear, kFar, kGamma));
  ASSERT_TRUE(report.is_ok());
  // Rings in two groups of three: 2 * 2 steps, three ranks each. Broadcasts: two ranks each ask.
  EXPECT_EQ(report->links[0].puts, 2u * 12 + 2 * 2);
  EXPECT_EQ(report->links[0].signals, 4u);
  EXPECT_EQ(report->links[0].bytes, 2 * (4 + 2) * count * kElement);
  // Two leaders: 2 * 1 steps of one half each.
  EXPECT_EQ(report->links[1].puts, 4u);
  EXPECT_EQ(report->links[1].bytes, 2 * count * kElement);
  EXPECT_EQ(report->reduced_bytes, (2 * 2 + 1) * count * kElement);
}

// A ring of N ranks reduces N - 1 times, one after another, and `shared` once.
TEST(Predict, EveryReductionTakesALaunch) {
  CostModel model = CostModel::uniform(kFar, kGamma);
  model.launch = 0x1p-17;
  const auto added = [&](std::string_view name) {
    const std::size_t count = even_count(4);
    return predicted(name, 4, count, {}, model) - predicted(name, 4, count);
  };
  expect_same(added("ring"), 3 * model.launch, "ring");
  expect_same(added("shared"), model.launch, "shared");
  model.launch = -1;
  const auto programs = generate_all("ring", 2, even_count(2));
  EXPECT_EQ(predict(programs, kElement, model).status().code(), Code::kInvalidArgument);
}

TEST(Predict, TheCriticalPathHasNoGaps) {
  for (const char* const name : {"ring", "tree", "halving-doubling", "mesh-2d", "direct"}) {
    const CostModel model = CostModel::uniform(kFar, kGamma);
    const auto programs = generate_all(name, 12, even_count(12));
    const CostReport report = predict(programs, kElement, model).value();
    ASSERT_FALSE(report.critical_path.empty()) << name;
    double at = 0;
    for (std::size_t i = 0; i < report.critical_path.size(); ++i) {
      const StepId& id = report.critical_path[i];
      const bool comes_from_message = i > 0 && report.critical_path[i - 1].rank != id.rank;
      if (comes_from_message) {
        EXPECT_EQ(report.end(id), at + kFar.alpha) << name;
      } else {
        EXPECT_EQ(report.begin(id), at) << name;
      }
      at = report.end(id);
    }
    EXPECT_EQ(at, report.seconds) << name;
  }
}

TEST(Predict, CostsNeverShortenAnything) {
  const Grouping grouping = Grouping::even(24, 6).value();
  for (const Algorithm& algorithm : algorithms()) {
    Shape shape;
    shape.groups = &grouping;
    const std::size_t count = algorithm.collective == Collective::kBarrier ? 0 : even_count(24);
    const auto programs = generate_all(algorithm.name, 24, count, shape, algorithm.collective);
    const auto seconds = [&](double alpha, double beta, double gamma, std::size_t element) {
      return predict(programs, element, CostModel::uniform({alpha, beta}, gamma)).value().seconds;
    };
    const double base = seconds(1e-6, 1e-10, 1e-11, 4);
    EXPECT_GE(seconds(2e-6, 1e-10, 1e-11, 4), base) << algorithm.name;
    EXPECT_GE(seconds(1e-6, 2e-10, 1e-11, 4), base) << algorithm.name;
    EXPECT_GE(seconds(1e-6, 1e-10, 2e-11, 4), base) << algorithm.name;
    EXPECT_GE(seconds(1e-6, 1e-10, 1e-11, 8), base) << algorithm.name;
    EXPECT_NEAR(seconds(2e-6, 2e-10, 2e-11, 4), 2 * base, 1e-12 * base) << algorithm.name;
    EXPECT_EQ(seconds(0, 0, 0, 4), 0) << algorithm.name;
  }
}

// The segments of a long vector flow through all levels of a tree at the same time.
TEST(Predict, SegmentsPipelineATree) {
  Shape segmented;
  segmented.segment = 4096;
  const std::size_t count = 1 << 18;
  EXPECT_LT(predicted("tree", 16, count, segmented), 0.75 * predicted("tree", 16, count));
}

TEST(Predict, AThousandRanks) {
  const int ranks = 1024;
  const std::size_t count = even_count(ranks);
  const Grouping grouping = Grouping::even(ranks, 16).value();
  Shape shape;
  shape.groups = &grouping;
  for (const char* const name : {"ring", "hierarchical", "torus-2d", "2d-tga"}) {
    ClosedFormCase of = case_of(ranks, count);
    of.groups = 16;
    of.within = kFar;
    expect_same(predicted(name, ranks, count, shape), closed_form(name, of).value(), name);
  }
}

TEST(Predict, SaysWhatIsWrong) {
  auto programs = exchange();
  EXPECT_EQ(predict(programs, 4, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(predict(programs, 4, CostModel::uniform({-1, 0}, 0)).status().code(),
            Code::kInvalidArgument);
  CostModel model = CostModel::uniform({1, 1}, 1);
  model.class_of = [](int, int) { return std::size_t{1}; };
  EXPECT_THAT(predict(programs, 4, model).status().message(), ::testing::HasSubstr("class 1"));
  model.class_of = nullptr;
  programs[0].steps.erase(programs[0].steps.begin());
  EXPECT_EQ(predict(programs, 4, model).status().code(), Code::kCorrupted);
}

}  // namespace
}  // namespace dunlin::collective
