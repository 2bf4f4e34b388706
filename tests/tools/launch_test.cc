// Whole jobs of processes, started in every way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <regex>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/ports.h"

namespace dunlin::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandResult run_job(int ranks, std::vector<std::string> probe_arguments,
                      std::vector<std::string> options = {},
                      const std::map<std::string, std::string>& variables = {}) {
  std::vector<std::string> command{program("dunlin-run"), "-n", std::to_string(ranks), "--bind",
                                   "none"};
  command.insert(command.end(), options.begin(), options.end());
  command.emplace_back(built("tests/programs/bootstrap_probe"));
  command.insert(command.end(), probe_arguments.begin(), probe_arguments.end());
  return run_command(command, variables);
}

int count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<int>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()));
}

TEST(Launch, DunlinRunStartsAJob) {
  const CommandResult result = run_job(8, {"meet"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(count(result.out, "rank \\d of 8 local \\d of 8 by dunlin-run: sum 828"), 8);
}

TEST(Launch, TheSecretDoesNotReachWhatARankStarts) {
  const std::string secret = "a secret for ranks only";
  const CommandResult result =
      run_command({built("tests/programs/bootstrap_probe"), "secret", secret},
                  {{"DUNLIN_RANK", "0"},
                   {"DUNLIN_SIZE", "1"},
                   {"DUNLIN_BOOTSTRAP_ADDRESS", "127.0.0.1:" + std::to_string(free_port())},
                   {"DUNLIN_JOB_SECRET", secret}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.out, "own none children false proc false\njoined again\n");
}

TEST(Launch, MpirunStartsAJob) {
  if (!std::filesystem::exists("/usr/bin/mpirun")) GTEST_SKIP() << "no mpirun here";
  if (!HAVE_PMIX) GTEST_SKIP() << "this build has no PMIx";
  const CommandResult result = run_command(
      {"mpirun", "--oversubscribe", "-n", "4", built("tests/programs/bootstrap_probe"), "meet"},
      {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(count(result.out, "rank \\d of 4 local \\d of 4 by pmix: sum 406"), 4) << result.out;
}

TEST(Launch, AJobOfMpirunThatMayGrowNeedsAnAddressAndRoom) {
  if (!std::filesystem::exists("/usr/bin/mpirun")) GTEST_SKIP() << "no mpirun here";
  if (!HAVE_PMIX) GTEST_SKIP() << "this build has no PMIx";
  const auto start = [](std::map<std::string, std::string> variables) {
    variables.insert({{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
    return run_command(
        {"mpirun", "--oversubscribe", "-n", "2", built("tests/programs/bootstrap_probe"), "meet"},
        variables);
  };
  const CommandResult no_address = start({{"DUNLIN_MAX_RANKS", "4"}});
  EXPECT_NE(no_address.exit_code, 0);
  EXPECT_THAT(no_address.out, HasSubstr("DUNLIN_BOOTSTRAP_ADDRESS is not"));
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const CommandResult no_secret =
      start({{"DUNLIN_MAX_RANKS", "4"}, {"DUNLIN_BOOTSTRAP_ADDRESS", address}});
  EXPECT_NE(no_secret.exit_code, 0);
  EXPECT_THAT(no_secret.out, HasSubstr("no job secret"));
  const CommandResult no_room = start({{"DUNLIN_MAX_RANKS", "1"},
                                       {"DUNLIN_BOOTSTRAP_ADDRESS", address},
                                       {"DUNLIN_JOB_SECRET", "the secret of a test of launchers"}});
  EXPECT_NE(no_room.exit_code, 0);
  EXPECT_THAT(no_room.out, HasSubstr("the job starts with 2 ranks"));
}

// Starts `size` probes, as a launcher does that only sets variables.
std::vector<CommandResult> run_with_variables(
    int size, const std::function<std::map<std::string, std::string>(int)>& variables) {
  std::vector<std::unique_ptr<RunningCommand>> probes;
  // The last rank starts first, so that the others have to wait for the coordinator of rank 0.
  for (int rank = size - 1; rank >= 0; --rank) {
    probes.push_back(std::make_unique<RunningCommand>(
        std::vector<std::string>{built("tests/programs/bootstrap_probe"), "meet"},
        variables(rank)));
  }
  std::vector<CommandResult> results;
  for (const auto& probe : probes) results.push_back(probe->wait(30s));
  return results;
}

TEST(Launch, TorchrunsVariablesStartAJob) {
  const std::string port = std::to_string(free_port());
  const auto results = run_with_variables(3, [&](int rank) {
    return std::map<std::string, std::string>{
        {"RANK", std::to_string(rank)},       {"WORLD_SIZE", "3"},
        {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", "3"},
        {"MASTER_ADDR", "localhost"},         {"MASTER_PORT", "29500"},
        {"DUNLIN_BOOTSTRAP_PORT", port},      {"DUNLIN_JOB_SECRET", "open sesame, please"}};
  });
  for (const CommandResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("by torchrun: sum 303"));
  }
}

TEST(Launch, VariablesSetByHandStartAJobWithoutALauncher) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const auto results = run_with_variables(2, [&](int rank) {
    return std::map<std::string, std::string>{{"DUNLIN_RANK", std::to_string(rank)},
                                              {"DUNLIN_SIZE", "2"},
                                              {"DUNLIN_BOOTSTRAP_ADDRESS", address},
                                              {"DUNLIN_JOB_SECRET", "open sesame, please"}};
  });
  for (const CommandResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("local 0 of 1 by environment: sum 201"));
  }
}

TEST(Launch, OneDunlinRunPerHostMakesOneJob) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const std::map<std::string, std::string> variables{{"DUNLIN_JOB_SECRET", "open sesame, please"}};
  const auto half = [&](const char* first) {
    return std::vector<std::string>{program("dunlin-run"),
                                    "-n",
                                    "2",
                                    "--size",
                                    "4",
                                    "--first-rank",
                                    first,
                                    "--coordinator",
                                    address,
                                    built("tests/programs/bootstrap_probe"),
                                    "meet"};
  };
  RunningCommand second(half("2"), variables);
  RunningCommand first(half("0"), variables);
  for (RunningCommand* each : {&first, &second}) {
    const CommandResult result = each->wait(30s);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(count(result.out, "of 4 local \\d of 2 by dunlin-run: sum 406"), 2) << result.out;
  }
}

// Rank 1 waits in vain for longer than the timeout, while rank 0 has ended. The timeout has to be
// long enough for both of them to start on a busy host.
TEST(Launch, TheTimeoutHoldsForRanksThatWereStartedElsewhere) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const std::map<std::string, std::string> variables{{"DUNLIN_JOB_SECRET", "open sesame, please"}};
  const auto rank = [&](const std::string& number, std::vector<std::string> command) {
    command.insert(command.begin(),
                   {program("dunlin-run"), "-n", "1", "--size", "2", "--first-rank", number,
                    "--coordinator", address, "--timeout", number == "0" ? "15s" : "60s",
                    built("tests/programs/bootstrap_probe")});
    return command;
  };
  RunningCommand second(rank("1", {"die-after", "never"}), variables);
  RunningCommand first(rank("0", {"end"}), variables);
  const CommandResult result = first.wait(60s);
  EXPECT_EQ(result.exit_code, 124) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("no longer waiting for 1 ranks"));
}

TEST(Launch, ASingleProcessIsAJobOfOne) {
  const CommandResult result = run_command({built("tests/programs/bootstrap_probe"), "meet"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "rank 0 of 1 local 0 of 1 by single: sum 100\n");
}

TEST(Launch, AMissingRankIsNamedToAll) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const std::map<std::string, std::string> variables{{"DUNLIN_JOB_SECRET", "open sesame, please"},
                                                     {"DUNLIN_BOOTSTRAP_TIMEOUT", "5s"}};
  const CommandResult result =
      run_command({program("dunlin-run"), "-n", "2", "--size", "4", "--coordinator", address,
                   built("tests/programs/bootstrap_probe")},
                  variables);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(count(result.out, "2 of 4 ranks have not joined in time: 2, 3"), 2) << result.out;
}

// The end of a process is an event that takes milliseconds to be known everywhere. The heartbeat is
// longer than the probe waits, so that nothing but that event can tell.
TEST(LaunchFailure, AKilledRankIsNoticedByAll) {
  const CommandResult result =
      run_job(8, {"kill", "3"}, {"--keep-going"}, {{"DUNLIN_HEARTBEAT", "60s"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("was killed by signal 9 (Killed)"));
  EXPECT_EQ(count(result.out, "noticed after \\d+ us: dead: "), 7) << result.out;
  EXPECT_EQ(count(result.out,
                  "barrier: peer_dead: barrier 'after'.*these ranks are dead: 3 \\(rank 3\\)"),
            7)
      << result.out;
}

TEST(LaunchFailure, AStoppedRankIsStalledAndComesBack) {
  const CommandResult result = run_job(3, {"stop", "1"}, {}, {{"DUNLIN_HEARTBEAT", "20ms"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(
      count(result.out, "stalled: no heartbeat for .*; process \\d+ is stopped \\(state T\\)"), 2)
      << result.out;
  EXPECT_EQ(count(result.out, "alive: heard from again"), 2);
}

TEST(LaunchFailure, SurvivorsOfTwoDeathsAgree) {
  const CommandResult result = run_job(6, {"reform", "1", "4"}, {"--keep-going"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("[0] epoch 1 members 0,2,3,5", "[2] epoch 1 members 0,2,3,5",
                          "[3] epoch 1 members 0,2,3,5", "[5] epoch 1 members 0,2,3,5"));
}

TEST(LaunchFailure, ARankThatLeavesIsNotDead) {
  const CommandResult result = run_job(4, {"leave", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(count(result.out, "left: it has shut down"), 3) << result.out;
}

}  // namespace
}  // namespace dunlin::testing
