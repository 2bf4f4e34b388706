// What dunlin-run ends, and when: ranks that stop or leave something running, and its own output
// that blocks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/fd.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace dunlin::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Runs a shell script in each of `ranks` ranks, with DUNLIN_RANK set.
CommandResult run_script(int ranks, const std::string& script,
                         std::vector<std::string> options = {}) {
  std::vector<std::string> command{program("dunlin-run"), "-n", std::to_string(ranks)};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", "sh", "-c", script});
  return run_command(command);
}

// Waits until the process is gone, or a zombie if the host does not reap orphans.
bool has_ended(int pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  const auto is_alive = [&] {
    std::ifstream file(process + "/stat");
    std::string number, name, state;
    return static_cast<bool>(file >> number >> name >> state) && state != "Z" && state != "X";
  };
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (is_alive() && std::chrono::steady_clock::now() < deadline) sched_yield();
  return !is_alive();
}

int pid_in(const std::string& out) {
  return std::stoi(out.substr(out.find("pid ") + 4));
}

TEST(DunlinRun, RanksDieWithIt) {
  RunningCommand command(
      {program("dunlin-run"), "-n", "1", "sh", "-c", "echo pid $$ end; exec sleep 1000"});
  ASSERT_TRUE(command.wait_for_output(" end", 20s));
  kill(command.pid(), SIGKILL);
  EXPECT_TRUE(has_ended(pid_in(command.wait(20s).out)));
}

// Rank 0 has started when another rank can't.
TEST(DunlinRun, AFailedStartEndsNothingButItsRanks) {
  const std::string run = program("dunlin-run");
  const CommandResult result =
      run_command({"sh", "-c", "ulimit -n 24; " + run + " -n 32 sleep 1000; echo result $?"});
  EXPECT_THAT(result.out, HasSubstr("result 1")) << result.err;
}

TEST(DunlinRun, EndsWhatARankLeavesRunning) {
  for (const char* const end : {"exit 0", "exit 3", "kill -9 $$"}) {
    const CommandResult result =
        run_script(1, std::string("trap '' TERM; sleep 1000 & echo pid $! end; ") + end);
    ASSERT_THAT(result.out, HasSubstr(" end")) << result.err;
    EXPECT_TRUE(has_ended(pid_in(result.out))) << end;
  }
}

TEST(DunlinRun, EndsARankThatStaysStoppedWhenAllOthersHaveEnded) {
  const CommandResult result = run_script(
      3, "if [ $DUNLIN_RANK = 1 ]; then kill -STOP $$; fi; echo done", {"--grace", "0.3"});
  EXPECT_THAT(result.err, HasSubstr("rank 1 (process "));
  EXPECT_THAT(result.err, HasSubstr("is stopped and all others have ended: ending it"));
  EXPECT_THAT(result.out, HasSubstr("[0] done"));
  EXPECT_NE(result.exit_code, 0);
}

// Runs dunlin-run with its output into a pipe that nothing reads from, and `then` beside it. Prints
// its exit code.
CommandResult run_blocked(const std::string& options, const std::string& then) {
  const std::string pipe = ::testing::TempDir() + "dunlin-run-blocked-" + std::to_string(getpid());
  std::filesystem::remove(pipe);
  RunningCommand command({"sh", "-c",
                          "mkfifo " + pipe + "; sleep 1000 < " + pipe + " & reader=$!; " +
                              program("dunlin-run") + " -n 2 --grace 0.2 " + options +
                              " -- sh -c 'yes' > " + pipe + " & run=$!; " + then +
                              " wait $run; echo code $?; kill $reader"});
  CommandResult result = command.wait(60s);
  std::filesystem::remove(pipe);
  return result;
}

TEST(DunlinRun, BlockedOutputHidesNeitherItsTimeoutNorSignals) {
  EXPECT_THAT(run_blocked("--timeout 1", "").out, HasSubstr("code 124"));
  EXPECT_THAT(run_blocked("", "sleep 1; kill -TERM $run;").out, HasSubstr("code 143"));
}

// The rank writes on when nobody reads any more, and ends by itself.
TEST(DunlinRun, AReaderThatHasGoneDoesNotEndTheJob) {
  const TempFolder folder;
  const std::string gone = folder.file("gone");
  const std::string done = folder.file("done");
  const std::string rank = "echo first; while ! [ -e " + gone +
                           " ]; do sleep 0.05; done; for i in 1 2 3; do echo more; done; touch " +
                           done;
  const CommandResult result =
      run_command({"bash", "-o", "pipefail", "-c",
                   program("dunlin-run") + " -n 1 -- sh -c '" + rank +
                       "' | { read -r line; exec <&-; touch " + gone + "; }"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(done));
}

// Where SIGCHLD is ignored, the kernel tells of no end.
TEST(DunlinRun, HearsOfTheEndOfRanksThoughItsParentIgnoresIt) {
  const CommandResult result =
      run_command({"env", "--ignore-signal=CHLD,PIPE", program("dunlin-run"), "-n", "2", "--", "sh",
                   "-c", "exit 3"},
                  {}, std::chrono::seconds(20));
  EXPECT_EQ(result.exit_code, 3);
}

TEST(DunlinRun, ASlowReaderGetsEverything) {
  const CommandResult result = run_command(
      {"sh", "-c", program("dunlin-run") + " -n 2 -- sh -c 'seq 100000' | (sleep 1; wc -l)"});
  EXPECT_EQ(std::stoi(result.out), 200'000);
}

// The name of a pipe that a test makes and removes.
class PipeName {
 public:
  PipeName() : path_(::testing::TempDir() + "dunlin-run-left-" + std::to_string(getpid())) {
    std::filesystem::remove(path_);
  }
  ~PipeName() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A rank leaves a process in a session of its own, and ends when that process is prepared.
std::string leaves(const std::string& pipe, const std::string& how, const std::string& prepare) {
  return "mkfifo " + pipe + "; " + how + " sh -c '" + prepare + " echo pid $$ end; echo > " + pipe +
         "; exec sleep 1000' & read line < " + pipe + "; rm " + pipe + "; ";
}

TEST(DunlinRun, EndsWhatARankLeavesRunningInASessionOfItsOwn) {
  for (const char* const end : {"exit 0", "exit 3", "kill -9 $$"}) {
    const PipeName pipe;
    const CommandResult result =
        run_script(1, leaves(pipe.path(), "setsid", "trap \"\" TERM;") + end, {"--grace", "0.2"});
    ASSERT_THAT(result.out, HasSubstr(" end")) << result.err;
    EXPECT_TRUE(has_ended(pid_in(result.out))) << end;
  }
}

TEST(DunlinRun, EndsDaemonsAndWhatTheseHaveStarted) {
  // No other process has this command line.
  const std::string sleep = "sleep 1000." + std::to_string(getpid());
  const CommandResult result = run_script(
      1,
      "setsid sh -c \"trap '' TERM; " + sleep + " & " + sleep + "\" & " + "setsid sh -c \"setsid " +
          sleep + " &\"; " + "until [ $(pgrep -cxf \"" + sleep + "\") = 3 ]; do :; done; echo left",
      {"--grace", "0.2"});
  EXPECT_THAT(result.out, HasSubstr("[0] left")) << result.err;
  EXPECT_EQ(run_command({"pgrep", "-xf", sleep}).out, "");
}

TEST(DunlinRun, WhatIsLeftRunningMayEndByItselfWhenItIsAsked) {
  const PipeName pipe;
  const std::string wait = "trap \"echo asked; exit 0\" TERM; echo pid $$ end; echo > " +
                           pipe.path() + "; while :; do sleep 0.01; done; ";
  const CommandResult result =
      run_script(1, leaves(pipe.path(), "setsid", wait) + "exit 0", {"--grace", "60"});
  EXPECT_THAT(result.out, HasSubstr("[0] asked"));
  EXPECT_EQ(result.exit_code, 0);
}

TEST(DunlinRun, LeavesWhatRanksHaveNotStarted) {
  const CommandResult result =
      run_command({"sh", "-c",
                   "sleep 1000 > /dev/null 2>&1 & echo pid $! end; exec " + program("dunlin-run") +
                       " -n 1 --grace 0.2 -- true"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(kill(pid_in(result.out), SIGKILL), 0) << "is gone";
}

TEST(DunlinRun, ATerminalThatTakesNothingHidesNoTimeout) {
  const Fd user(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(user.is_open() && grantpt(user.get()) == 0 && unlockpt(user.get()) == 0);
  const std::string terminal = ptsname(user.get());
  const CommandResult result = run_command(
      {"sh", "-c",
       "exec " + program("dunlin-run") + " -n 1 --timeout 1 --grace 0.2 -- yes > " + terminal});
  EXPECT_EQ(result.exit_code, 124) << result.err;
}

}  // namespace
}  // namespace dunlin::testing
