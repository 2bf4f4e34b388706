// dunlin-graph: its text, its files and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/paths.h"
#include "tests/tools/json_lines.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

Outcome run(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = popen((program("dunlin-graph") + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(GraphProgram, PrintsAReport) {
  const Outcome outcome = run("root-expander --nodes 25");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* part : {"edges              50", "diameter           8",
                           "spectral gap       0.1419", "mixing time        46", "8.333 %"}) {
    EXPECT_THAT(outcome.output, HasSubstr(part));
  }
}

TEST(GraphProgram, PrintsJson) {
  const auto json = nlohmann::json::parse(run("hypercube --nodes 16 --json").output);
  EXPECT_EQ(json.at("nodes"), 16);
  EXPECT_EQ(json.at("regular_degree"), 4);
  EXPECT_EQ(json.at("diameter").at("upper"), 4);
  EXPECT_EQ(json.at("doubly_stochastic"), true);
  EXPECT_NEAR(json.at("spectral_gap"), 0.4, 1e-12);
}

TEST(GraphProgram, ComparesAllGraphs) {
  const auto lines = json_lines(run("--compare --nodes 25 --json").output);
  EXPECT_EQ(lines.size(), 11u);
  for (const auto& entry : lines) {
    EXPECT_EQ(entry.contains("error"), entry.at("graph") == "hypercube") << entry;
  }
  EXPECT_THAT(run("--compare --nodes 25").output, HasSubstr("must be a power of two"));
}

TEST(GraphProgram, WritesAnEdgeListThatItReads) {
  const std::string path = ::testing::TempDir() + "graph_program.txt";
  EXPECT_EQ(run("mesh:3x4 --edges " + path).exit_code, 0);
  const Outcome outcome = run("file:" + path);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("edges              34"));
}

TEST(GraphProgram, Draws) {
  const std::string path = ::testing::TempDir() + "graph_program.svg";
  EXPECT_EQ(run("torus:4x4 --svg " + path).exit_code, 0);
  const std::string svg = contents(path);
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_THAT(svg, HasSubstr(">15</text>"));
  const Outcome png = run("ring --nodes 4 --svg " + ::testing::TempDir() + "graph.png");
  EXPECT_EQ(png.exit_code, 2);
  EXPECT_THAT(png.output, HasSubstr("its name must end in .svg"));
  const Outcome large = run("ring --nodes 401 --svg " + path);
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_THAT(large.output, HasSubstr("too large to draw"));
}

TEST(GraphProgram, ExitCodesTellWhy) {
  const std::string path = ::testing::TempDir() + "graph_program_parts.txt";
  std::ofstream(path) << "nodes 3\n0 1\n";
  EXPECT_EQ(run("file:" + path).exit_code, 0);
  const Outcome parts = run("file:" + path + " --require-connected");
  EXPECT_EQ(parts.exit_code, 1);
  EXPECT_THAT(parts.output, HasSubstr("is not strongly connected"));
  EXPECT_EQ(run("file:/nowhere").exit_code, 1);
  const Outcome endless = run("file:/dev/zero --nodes 4");
  EXPECT_EQ(endless.exit_code, 2);
  EXPECT_THAT(endless.output, HasSubstr("/dev/zero: is not a regular file"));
  EXPECT_EQ(run("ring --nodes 4 > /dev/full").exit_code, 1);
  const Outcome full = run("ring --nodes 4 --json-out /dev/full");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.output, HasSubstr("/dev/full: write: No space left on device"));
  EXPECT_EQ(run("--help").exit_code, 0);
  for (const char* wrong :
       {"", "--compare", "ring", "ring --nodes 0", "rign --nodes 4", "--unknown",
        "ring --nodes 4 --weights best", "ring --nodes 4 --weights metropolis"}) {
    EXPECT_EQ(run(wrong).exit_code, 2) << wrong;
  }
}

}  // namespace
}  // namespace dunlin::testing
