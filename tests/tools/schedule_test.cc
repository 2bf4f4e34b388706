// dunlin-schedule: its text, its JSON and its drawings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/command.h"
#include "tests/support/files.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/json_lines.h"

namespace dunlin::schedule {
namespace {

using ::testing::HasSubstr;

dunlin::testing::CommandResult run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), dunlin::testing::program("dunlin-schedule"));
  return dunlin::testing::run_command(arguments);
}

nlohmann::json json_of(const std::vector<std::string>& arguments) {
  const auto result = run(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out);
}

TEST(DunlinSchedule, ListHasEveryAlgorithm) {
  EXPECT_THAT(run({"list"}).out, HasSubstr("halving-doubling"));
  const auto json = testing::json_lines(run({"list", "--json"}).out);
  ASSERT_GT(json.size(), 20u);
  EXPECT_EQ(json[0].at("collective"), "all-reduce");
}

TEST(DunlinSchedule, CheckFindsAllOfThemRight) {
  const auto json =
      testing::json_lines(run({"check", "--ranks", "12", "--size", "4000", "--json"}).out);
  EXPECT_GE(json.size(), 10u);
  for (const auto& entry : json) EXPECT_EQ(entry.at("is_right"), true) << entry;
  EXPECT_THAT(run({"check", "--collective", "broadcast", "--ranks", "5", "--root", "4"}).out,
              HasSubstr("tree"));
}

TEST(DunlinSchedule, CostOfTheRingByHand) {
  // 7 steps in each phase, of 1 us and 1000 B at 1 GB/s, and 7 reduces of 1000 B at 1 ns per byte.
  const auto json = json_of({"cost", "--algorithm", "ring", "--ranks", "8", "--size", "8000",
                             "--alpha", "1us", "--bandwidth", "1GB", "--gamma", "1ns", "--json"});
  const auto& ring = json.at("algorithms").at(0);
  EXPECT_NEAR(ring.at("seconds").get<double>(), 14 * 2e-6 + 7 * 1e-6, 1e-15);
  EXPECT_NEAR(ring.at("formula_seconds").get<double>(), 35e-6, 1e-15);
}

TEST(DunlinSchedule, CostOfAllWithLinksOfTwoClasses) {
  const auto json = json_of({"cost", "--ranks", "16", "--groups", "4", "--size", "1MiB",
                             "--intra-alpha", "200ns", "--intra-bandwidth", "20GB", "--json"});
  std::set<std::string> names;
  for (const auto& entry : json.at("algorithms")) {
    const std::string name = entry.at("algorithm");
    names.insert(name);
    EXPECT_GT(entry.at("seconds"), 0);
    const bool has_formula = name == "hierarchical" || name == "2d-tga";
    ASSERT_EQ(!entry.at("formula_seconds").is_null(), has_formula) << name;
    if (!has_formula) continue;
    EXPECT_NEAR(entry.at("seconds").get<double>() / entry.at("formula_seconds").get<double>(), 1,
                1e-9)
        << name;
  }
  EXPECT_TRUE(names.contains("mesh-2d"));
  // A host with all ranks has near links only.
  const auto one_host = json_of({"cost", "--ranks", "16", "--algorithm", "ring", "--per-host", "16",
                                 "--intra-alpha", "200ns", "--json"});
  EXPECT_EQ(one_host.at("algorithms")[0].at("links")[1].at("bytes"), 0);
  EXPECT_GT(one_host.at("algorithms")[0].at("links")[0].at("bytes"), 0);
  const auto text = run({"cost", "--ranks", "16"});
  EXPECT_THAT(text.out, HasSubstr("+0.00 %"));
}

TEST(DunlinSchedule, DrawWritesPictureAndTrace) {
  const dunlin::testing::TempFolder folder;
  const std::string svg = folder.file("ring.svg");
  const std::string trace = folder.file("ring.json");
  const auto result =
      run({"draw", "--algorithm", "ring", "--ranks", "4", "--svg", svg, "--trace", trace});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(testing::content_of(svg), HasSubstr("data-step=\"3:0\""));
  EXPECT_GT(nlohmann::json::parse(testing::content_of(trace)).at("traceEvents").size(), 40u);
  EXPECT_EQ(run({"draw", "--algorithm", "ring"}).exit_code, 2);
  EXPECT_EQ(run({"draw", "--svg", svg}).exit_code, 2);
  const auto png = run({"draw", "--algorithm", "ring", "--svg", folder.file("ring.png")});
  EXPECT_EQ(png.exit_code, 2);
  EXPECT_THAT(png.err, HasSubstr("its name must end in .svg"));
  EXPECT_EQ(run({"draw", "--algorithm", "ring", "--svg", folder.file("none/x.svg")}).exit_code, 1);
}

TEST(DunlinSchedule, FiguresSayWhatHolds) {
  const auto result = run({"figures", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::map<std::string, int> points;
  std::map<std::string, bool> holds;
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (entry.contains("figure")) ++points[entry.at("figure")];
    if (entry.contains("statement"))
      holds[entry.at("statement").get<std::string>().substr(0, 12)] = entry.at("holds");
  }
  EXPECT_EQ(points["3a"], 4 * 7);
  EXPECT_EQ(points["3b"], 2 * 5);
  EXPECT_EQ(points["4a"], 7 + 7 + 5);
  EXPECT_EQ(points["4b"], 3 * 5);
  EXPECT_TRUE(holds.at("3a: the time"));
  EXPECT_TRUE(holds.at("3a: 2d-tga a"));
  EXPECT_TRUE(holds.at("3a: 2d-tga i"));
  EXPECT_TRUE(holds.at("3b: with mor"));
  // The real algorithm broadcasts within groups, which takes longer in larger groups.
  EXPECT_FALSE(holds.at("4b: the fewe"));
  // With a long vector those broadcasts take more than the ring.
  EXPECT_THAT(run({"figures", "--size", "25.6MB"}).out, HasSubstr("[FAILS] 3a: 2d-tga and"));
}

TEST(DunlinSchedule, CommandLineSaysWhatIsWrong) {
  EXPECT_EQ(run({}).exit_code, 2);
  EXPECT_EQ(run({"cost", "--alpha", "2"}).exit_code, 2);
  EXPECT_THAT(run({"cost", "--alpha", "2"}).err, HasSubstr("a time with its unit"));
  EXPECT_THAT(run({"cost", "--algorithm", "rings"}).err, HasSubstr("halving-doubling"));
  EXPECT_THAT(
      run({"cost", "--algorithm", "2d-tga", "--groups", "6", "--ranks", "12", "--grid", "2x2"}).err,
      HasSubstr("2 x 2 does not fit 6 groups"));
  EXPECT_THAT(run({"check", "--ranks", "8", "--grid", "3x3"}).out,
              HasSubstr("left out: torus-2d: a grid of 3 x 3 does not fit 8 ranks"));
  EXPECT_EQ(run({"check", "--ranks", "65"}).exit_code, 2);
  EXPECT_EQ(run({"figures", "--size", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace dunlin::schedule
