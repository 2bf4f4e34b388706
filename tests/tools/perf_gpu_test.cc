// dunlin-perf --memory cuda as a user runs it, on the stand-in for CUDA's driver (tests/fake_cuda),
// whose addresses end a process that follows them. It runs the reductions of the host's build, so
// that a build without nvcc is tested as well. Streams work late, and every benchmark compares what
// has arrived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/files.h"
#include "tests/support/paths.h"
#include "tests/tools/perf_command.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Two GPUs, or what `settings` of the stand-in say.
Variables gpus(const Variables& settings = {}) {
  Variables variables{{"LD_LIBRARY_PATH",
                       std::filesystem::path(built("tests/fake_cuda/libcuda.so.1")).parent_path()},
                      {"FAKE_CUDA_DELAY_US", "100"}};
  for (const auto& [name, value] : settings) variables[name] = value;
  return variables;
}

void expect_gpus(const Json& line, int first, int second) {
  ASSERT_THAT(line.at("gpus"), SizeIs(2));
  for (const int rank : {0, 1}) {
    const Json& gpu = line.at("gpus").at(static_cast<std::size_t>(rank));
    const int number = rank == 0 ? first : second;
    EXPECT_EQ(gpu.at("rank"), rank);
    EXPECT_EQ(gpu.at("number"), number);
    EXPECT_EQ(gpu.at("name"), "Fake A1");
    EXPECT_EQ(gpu.at("pci_bus_id"), number == 0 ? "0000:3b:00.0" : "0000:af:00.0");
  }
}

TEST(DunlinPerfGpu, PutsGetsAndNotificationsMoveGpuMemory) {
  for (const std::string bench : {"put", "get", "put-notify"}) {
    const auto lines = measure(
        2, {bench, "--memory", "cuda", "--size", "0,1,8,4K,100000", "--iterations", "20"}, gpus());
    ASSERT_THAT(lines, SizeIs(5)) << bench;
    for (const Json& line : lines) {
      EXPECT_EQ(line.at("bench"), bench);
      EXPECT_EQ(line.at("transport"), "shm");
      EXPECT_EQ(line.at("memory"), "cuda");
      expect_gpus(line, 0, 1);
      EXPECT_GT(line.at("p50_us").get<double>(), 0);
      EXPECT_GT(line.at("limit").at("p50_us").get<double>(), 0);
    }
    EXPECT_GT(lines[4].at("gbytes_per_s").get<double>(), 0) << bench;
  }
}

TEST(DunlinPerfGpu, PutsStreamBothWays) {
  const auto lines = measure(2,
                             {"put", "--memory", "cuda", "--size", "64K", "--iterations", "200",
                              "--bidirectional", "--queue-depth", "100"},
                             gpus());
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_GT(lines[0].at("gbytes_per_s").get<double>(), 0);
}

TEST(DunlinPerfGpu, CollectivesRunOnGpuMemory) {
  for (const std::string bench :
       {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all", "reduce"}) {
    const auto lines =
        measure(2, {bench, "--memory", "cuda", "--size", "8,100000", "--iterations", "20"}, gpus());
    ASSERT_THAT(lines, SizeIs(2)) << bench;
    for (const Json& line : lines) {
      EXPECT_EQ(line.at("bench"), bench);
      EXPECT_EQ(line.at("memory"), "cuda");
      EXPECT_EQ(line.at("checked"), true);
      expect_gpus(line, 0, 1);
      EXPECT_GT(line.at("p50_us").get<double>(), 0);
      EXPECT_TRUE(line.at("limit").is_null());
    }
  }
}

TEST(DunlinPerfGpu, AnAllReduceOnOneGpuStandsBesideOneKernel) {
  for (const Json& line :
       measure(3, {"all-reduce", "--memory", "cuda:0", "--size", "8,100000", "--iterations", "20"},
               gpus())) {
    EXPECT_GT(line.at("limit").at("p50_us").get<double>(), 0);
    EXPECT_GT(line.at("in_turns_us").get<double>(), 0);
    EXPECT_GT(line.at("ratio").get<double>(), 0);
  }
  const CommandResult text =
      perf(2, {"all-reduce", "--memory", "cuda:0", "--size", "8", "--iterations", "20"}, gpus());
  EXPECT_THAT(text.out, HasSubstr("in turns"));
}

TEST(DunlinPerfGpu, EveryAlgorithmAndOverlapRunOnGpuMemory) {
  const auto lines =
      measure(3,
              {"all-reduce", "--memory", "cuda:1", "--algorithm", "all", "--size", "40000",
               "--iterations", "20", "--out-of-place", "--type", "bfloat16"},
              gpus());
  EXPECT_GE(lines.size(), 3U);
  for (const Json& line : lines) EXPECT_EQ(line.at("checked"), true);
  EXPECT_THAT(
      measure(2, {"overlap", "--memory", "cuda", "--size", "64K", "--iterations", "20"}, gpus()),
      SizeIs(1));
}

TEST(DunlinPerfGpu, ANumberChoosesTheGpuAndTheTextNamesIt) {
  const CommandResult one =
      perf(2, {"put", "--memory", "cuda:1", "--size", "8", "--iterations", "20"}, gpus());
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("memory of GPU 1, Fake A1, 0000:af:00.0: rank 0,1"));
  EXPECT_THAT(one.out, HasSubstr("a copy of the same size on the GPU"));
  const auto all = measure(2, {"put", "--memory", "cuda", "--size", "8", "--iterations", "20"},
                           gpus({{"FAKE_CUDA_DEVICES", "1"}}));
  ASSERT_THAT(all, SizeIs(1));
  expect_gpus(all[0], 0, 0);
}

TEST(DunlinPerfGpu, HostMemoryIsTheDefault) {
  const auto lines = measure(2, {"put", "--size", "8", "--iterations", "20"}, gpus());
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0].at("memory"), "host");
  EXPECT_FALSE(lines[0].contains("gpus"));
}

// The copy of each process that is made wrong is one of the check's.
TEST(DunlinPerfGpu, WrongDataIsNoticed) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"put", "--size", "8"}, "3"},
      {{"get", "--size", "8"}, "2"},
      {{"put-notify", "--size", "4K"}, "2"},
      {{"all-reduce", "--size", "4K", "--type", "int32"}, "1"}};
  for (auto [arguments, copy] : cases) {
    arguments.insert(arguments.end(), {"--memory", "cuda", "--iterations", "20"});
    const CommandResult result = perf(2, arguments, gpus({{"FAKE_CUDA_CORRUPT", copy}}));
    EXPECT_EQ(result.exit_code, 1) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("wrong data")) << arguments[0];
  }
}

TEST(DunlinPerfGpu, BenchmarksOfHostMemorySayWhy) {
  for (const std::string bench :
       {"put-latency", "notify", "atomic", "channel", "barrier", "mutex", "window",
        "neighbor-all-reduce", "partial", "groups", "straggler-ring", "consistency"}) {
    const CommandResult result = perf(2, {bench, "--memory", "cuda"}, gpus());
    EXPECT_EQ(result.exit_code, 2) << bench;
    EXPECT_THAT(result.err, HasSubstr(bench + ": it cannot measure GPU memory: ")) << bench;
    EXPECT_EQ(perf(2, {bench, "--help"}).out.find("cuda"), std::string::npos) << bench;
  }
  const CommandResult tcp = perf(2, {"put", "--memory", "cuda", "--transport", "tcp"}, gpus());
  EXPECT_EQ(tcp.exit_code, 1);
  EXPECT_THAT(tcp.err, HasSubstr("no transport can register the memory: tcp: "));
}

TEST(DunlinPerfGpu, WhatIsMissingIsTold) {
  const auto refusal = [](const std::string& memory, const Variables& variables) {
    const CommandResult result = perf(2, {"put", "--memory", memory, "--size", "8"}, variables);
    EXPECT_EQ(result.exit_code, 2) << memory;
    EXPECT_THAT(result.out, Not(HasSubstr("over shm"))) << memory;
    return result.err;
  };
  EXPECT_THAT(refusal("cuda:2", gpus()),
              HasSubstr("--memory cuda:2: this process sees 2 GPUs: 0 (Fake A1), 1 (Fake A1). "
                        "Choose one of these"));
  EXPECT_THAT(refusal("cuda", gpus({{"FAKE_CUDA_DEVICES", "0"}})),
              HasSubstr("--memory cuda: the CUDA driver finds no device. Install NVIDIA's driver"));
  for (const char* memory : {"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda0"})
    EXPECT_THAT(refusal(memory, gpus()),
                HasSubstr(std::string("'") + memory + "' is none of host"));
  EXPECT_THAT(refusal("any", gpus()), HasSubstr("any is for collectives"));
  // The loader finds this file first, and it is no library.
  const std::string folder = ::testing::TempDir() + "no_cuda_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  written(folder + "/libcuda.so.1", "");
  const std::string none = refusal("cuda", {{"LD_LIBRARY_PATH", folder}});
  std::filesystem::remove_all(folder);
  EXPECT_THAT(none, HasSubstr("--memory cuda: no CUDA driver: "));
  EXPECT_THAT(none, HasSubstr("measure host memory with --memory host (the default)"));
}

}  // namespace
}  // namespace dunlin::testing
