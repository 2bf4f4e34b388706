#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/topology.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace dunlin::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Runs a shell script in each of `ranks` ranks, with DUNLIN_RANK set.
CommandResult run_script(int ranks, const std::string& script,
                         std::vector<std::string> options = {},
                         const std::map<std::string, std::string>& variables = {}) {
  std::vector<std::string> command{program("dunlin-run"), "-n", std::to_string(ranks)};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", "sh", "-c", script});
  return run_command(command, variables);
}

TEST(DunlinRun, NumbersItsRanksAndTagsTheirLines) {
  const CommandResult result = run_script(3, "echo out $DUNLIN_RANK/$DUNLIN_SIZE; echo err >&2");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("[0] out 0/3", "[1] out 1/3", "[2] out 2/3"));
  EXPECT_THAT(sorted_lines(result.err), ElementsAre("[0] err", "[1] err", "[2] err"));
}

TEST(DunlinRun, RaisesTheLimitOfOpenFilesOrSaysThatItIsTooLow) {
  const std::string run = program("dunlin-run") + " -n 16 -- sh -c 'echo there'";
  const CommandResult soft = run_command({"sh", "-c", "ulimit -Sn 64; " + run});
  EXPECT_EQ(soft.exit_code, 0) << soft.err;
  EXPECT_THAT(sorted_lines(soft.out), SizeIs(16));
  const CommandResult hard = run_command({"sh", "-c", "ulimit -n 64; " + run});
  EXPECT_NE(hard.exit_code, 0);
  EXPECT_THAT(hard.err, HasSubstr("starting 16 ranks takes about 80 open files here, and this "
                                  "process may have 64: raise the limit (ulimit -n)"));
}

TEST(DunlinRun, SetsTheNumbersOfMpiLaunchersAsWell) {
  const char* const script =
      "echo $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE "
      "$OMPI_COMM_WORLD_LOCAL_RANK/$OMPI_COMM_WORLD_LOCAL_SIZE";
  EXPECT_THAT(sorted_lines(run_script(2, script).out), ElementsAre("[0] 0/2 0/2", "[1] 1/2 1/2"));
  // The second of two hosts with two ranks each.
  const CommandResult second =
      run_command({program("dunlin-run"), "-n", "2", "--size", "4", "--first-rank", "2",
                   "--coordinator", "127.0.0.1:1", "--", "sh", "-c", script},
                  {{"DUNLIN_JOB_SECRET", "known to both hosts"}});
  EXPECT_THAT(sorted_lines(second.out), ElementsAre("[2] 2/4 0/2", "[3] 3/4 1/2"));
}

TEST(DunlinRun, KeepsThePortForTheStoreOfRank0FromOthers) {
  const CommandResult result = run_script(1, R"(exec python3 -c "
import os, socket
address = ('127.0.0.1', int(os.environ['MASTER_PORT']))
try:
    socket.socket().bind(address)
except OSError as error:
    print(error.strerror)
store = socket.socket()
store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
store.bind(address)
store.listen()
print('listens')
")");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "[0] Address already in use\n[0] listens\n");
}

TEST(DunlinRun, LeavesJsonLinesOfStandardOutputUntagged) {
  const char* const script = "echo '{\"size\": 8}'; echo '{ no json'; echo '{}' >&2";
  const CommandResult result = run_script(1, script);
  EXPECT_EQ(result.out, "{\"size\": 8}\n[0] { no json\n");
  EXPECT_EQ(result.err, "[0] {}\n");
  EXPECT_EQ(run_script(1, script, {"--tag-output"}).out, "[0] {\"size\": 8}\n[0] { no json\n");
  EXPECT_EQ(run_script(1, script, {"--no-tag"}).out, "{\"size\": 8}\n{ no json\n");
}

TEST(DunlinRun, LinesOfRanksNeverMix) {
  const CommandResult result = run_script(
      4,
      "i=0; while [ $i -lt 500 ]; do printf 'aaaaaaaaaa'; printf 'bbbbbbbbbb\\n'; i=$((i+1)); done",
      {"--no-tag"});
  const auto lines = sorted_lines(result.out);
  EXPECT_THAT(lines, SizeIs(2000));
  EXPECT_EQ(lines.front(), "aaaaaaaaaabbbbbbbbbb");
  EXPECT_EQ(lines.back(), "aaaaaaaaaabbbbbbbbbb");
}

TEST(DunlinRun, TheLastLineNeedsNoLineFeed) {
  EXPECT_EQ(run_script(1, "printf 'no end'").out, "[0] no end\n");
}

TEST(DunlinRun, ReturnsTheFirstFailingCodeAndNamesTheRank) {
  const CommandResult result = run_script(3, "if [ $DUNLIN_RANK = 1 ]; then exit 7; fi");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("dunlin-run: rank 1 (process "));
  EXPECT_THAT(result.err, HasSubstr("exited with code 7"));
}

// Ranks that noticed the death may end, and be reaped, before the killed one.
TEST(DunlinRun, ARankThatWasKilledIsTheCauseOfTheOthersFailures) {
  const CommandResult result =
      run_script(3, "if [ $DUNLIN_RANK = 1 ]; then sleep 0.5; kill -KILL $$; fi; exit 1");
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
}

TEST(DunlinRun, EndsAllWhenOneFails) {
  const CommandResult result =
      run_script(3, "if [ $DUNLIN_RANK = 1 ]; then kill -9 $$; fi; sleep 1000", {"--grace", "0.1"});
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.err, HasSubstr("was killed by signal 9 (Killed)"));
}

TEST(DunlinRun, KillsRanksThatIgnoreTheRequest) {
  const CommandResult result = run_script(
      2, "if [ $DUNLIN_RANK = 1 ]; then exit 3; fi; trap '' TERM; while :; do sleep 1000; done",
      {"--grace", "0.1"});
  EXPECT_EQ(result.exit_code, 3);
}

TEST(DunlinRun, LetsSurvivorsReportBeforeItEndsThem) {
  // Rank 0 needs some time after the end of rank 1, and gets it.
  const std::string pipe = ::testing::TempDir() + "dunlin-run-pipe-" + std::to_string(getpid());
  std::filesystem::remove(pipe);
  const CommandResult result =
      run_script(2,
                 "if [ $DUNLIN_RANK = 0 ]; then mkfifo " + pipe + "; cat " + pipe +
                     "; echo reported; exit 5; fi; " + "while [ ! -p " + pipe +
                     " ]; do :; done; echo > " + pipe + "; exit 3",
                 {"--grace", "20"});
  std::filesystem::remove(pipe);
  EXPECT_THAT(result.out, HasSubstr("[0] reported"));
}

TEST(DunlinRun, KeepsGoingWhenAsked) {
  const char* const script = "if [ $DUNLIN_RANK = 0 ]; then kill -9 $$; fi; echo done";
  const CommandResult killed = run_script(3, script, {"--keep-going"});
  EXPECT_EQ(killed.exit_code, 0);
  EXPECT_THAT(sorted_lines(killed.out), ElementsAre("[1] done", "[2] done"));
  EXPECT_EQ(run_script(3, "exit $DUNLIN_RANK", {"--keep-going"}).exit_code, 1);
  EXPECT_EQ(run_script(2, "kill -9 $$", {"--keep-going"}).exit_code, 137);
}

TEST(DunlinRun, EndsEverythingAtItsTimeout) {
  const CommandResult result = run_script(2, "sleep 1000", {"--timeout", "0.2", "--grace", "0.1"});
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.err, HasSubstr("timeout after 0.2 s"));
}

TEST(DunlinRun, ForwardsSignals) {
  RunningCommand command({program("dunlin-run"), "-n", "2", "sh", "-c",
                          "trap 'echo caught; exit 9' TERM; echo ready $DUNLIN_RANK; "
                          "while :; do sleep 0.01; done"});
  ASSERT_TRUE(command.wait_for_output("ready 0", 20s));
  ASSERT_TRUE(command.wait_for_output("ready 1", 20s));
  kill(command.pid(), SIGTERM);
  const CommandResult result = command.wait(20s);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.out, HasSubstr("[0] caught"));
  EXPECT_THAT(result.out, HasSubstr("[1] caught"));
}

TEST(DunlinRun, SaysWhatCannotBeStarted) {
  const CommandResult missing = run_command({program("dunlin-run"), "-n", "2", "no-such-program"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("no program 'no-such-program' in PATH="));

  const std::string path =
      ::testing::TempDir() + "dunlin-run-no-program-" + std::to_string(getpid());
  std::ofstream(path) << "neither script nor program";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const CommandResult broken = run_command({program("dunlin-run"), "-n", "2", path});
  std::filesystem::remove(path);
  EXPECT_EQ(broken.exit_code, 127);
  EXPECT_THAT(broken.err, HasSubstr("cannot start '" + path + "': Exec format error"));
  EXPECT_THAT(broken.out, IsEmpty());
}

TEST(DunlinRun, TellsRanksThatTheJobMayGrowAndWritesHowToJoinIt) {
  const TempFolder folder;
  const std::string file = folder.path() / "job";
  const CommandResult result =
      run_script(2, "echo $DUNLIN_SIZE $DUNLIN_MAX_RANKS $(cut -d' ' -f1 " + file + ")",
                 {"--max-ranks", "5", "--job-file", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("[0] 2 5 dunlin-job", "[1] 2 5 dunlin-job"));
  EXPECT_FALSE(std::filesystem::exists(file)) << "the job is over";
}

TEST(DunlinRun, LeavesTheJobFileOfALaterJob) {
  const TempFolder folder;
  const std::string file = folder.path() / "job";
  const CommandResult result = run_script(
      1, "umask 77; echo dunlin-job 127.0.0.1:4711 later sixteen-letters-or-more >" + file,
      {"--max-ranks", "2", "--job-file", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::string content;
  std::getline(std::ifstream(file), content);
  EXPECT_THAT(content, HasSubstr("later"));
}

TEST(DunlinRun, StartsProcessesThatJoinAJobWithoutARank) {
  const TempFolder folder;
  const std::string file = folder.path() / "job";
  std::ofstream(file) << "dunlin-job 127.0.0.1:4711 job-1 sixteen-letters-or-more\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  const CommandResult result =
      run_script(2, "echo $DUNLIN_JOIN \"'$DUNLIN_RANK'\" $DUNLIN_BOOTSTRAP_ADDRESS $DUNLIN_JOB_ID",
                 {"--join", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("[+0] on '' 127.0.0.1:4711 job-1", "[+1] on '' 127.0.0.1:4711 job-1"));
}

// A program that joined a job may start one of its own.
TEST(DunlinRun, DoesNotPassOnThePlaceOfItsOwnJob) {
  const CommandResult result =
      run_script(1, "echo $DUNLIN_JOIN $DUNLIN_MAX_RANKS", {},
                 {{"DUNLIN_JOIN", "on"}, {"DUNLIN_MAX_RANKS", "8"}, {"DUNLIN_LOCAL_RANK", "0"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "[0] off 0\n");
}

TEST(DunlinRun, RefusesWhatDoesNotFitAGrowingJob) {
  const auto refusal = [](std::vector<std::string> options) {
    const CommandResult result = run_script(2, "true", std::move(options));
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(refusal({"--max-ranks", "1"}), HasSubstr("--max-ranks"));
  EXPECT_THAT(refusal({"--job-file", "x"}), HasSubstr("--max-ranks"));
  EXPECT_THAT(refusal({"--join", "x", "--max-ranks", "4"}), HasSubstr("--join"));
}

// What stands there already is nobody's job, and stays.
TEST(DunlinRun, DoesNotReplaceAFileThatIsNoJobFile) {
  const TempFolder folder;
  const std::string file = folder.path() / "notes";
  std::ofstream(file) << "mine\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  const CommandResult result = run_script(1, "true", {"--max-ranks", "2", "--job-file", file});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("is something else"));
  std::string content;
  std::getline(std::ifstream(file), content);
  EXPECT_EQ(content, "mine");
}

TEST(DunlinRun, RefusesWrongCommandLines) {
  EXPECT_EQ(run_command({program("dunlin-run")}).exit_code, 2);
  EXPECT_EQ(run_command({program("dunlin-run"), "-n", "0", "true"}).exit_code, 2);
  EXPECT_EQ(run_command({program("dunlin-run"), "-n", "2"}).exit_code, 2);
  EXPECT_EQ(run_command({program("dunlin-run"), "-n", "2", "--size", "4", "true"}).exit_code, 2);
  EXPECT_EQ(
      run_command({program("dunlin-run"), "-n", "2", "--coordinator", "nowhere", "true"}).exit_code,
      2);
  for (const char* const option : {"--timeout", "--grace"}) {
    for (const char* const value : {"1e300", "1e300s", "nan", "nans", "-1", "-1s", "inf", "soon"}) {
      const CommandResult result =
          run_command({program("dunlin-run"), "-n", "1", option, value, "true"});
      EXPECT_EQ(result.exit_code, 2) << option << " " << value;
      EXPECT_THAT(result.err, HasSubstr(option));
    }
  }
  const CommandResult unknown = run_command({program("dunlin-run"), "-n", "2", "--color", "true"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--color"));
  EXPECT_EQ(run_command({program("dunlin-run"), "--help"}).exit_code, 0);
  EXPECT_EQ(
      run_command({program("dunlin-run"), "-n", "1", "true"}, {{"DUNLIN_WAIT", "x"}}).exit_code, 2);
}

TEST(DunlinRun, BindsEachRankToItsOwnCores) {
  const int cores = host_topology().cores;
  const TempFolder folder;  // jobs outside it have taken no cores
  const std::map<std::string, std::string> alone{{"XDG_RUNTIME_DIR", folder.path().string()}};
  const CommandResult result = run_script(2, "grep Cpus_allowed_list /proc/self/status", {}, alone);
  const auto lines = sorted_lines(result.out);
  ASSERT_THAT(lines, SizeIs(2));
  if (cores < 2) GTEST_SKIP() << "one usable core";
  EXPECT_NE(lines[0].substr(4), lines[1].substr(4)) << result.out;
  const CommandResult many = run_script(8 * cores, "true", {"--bind", "core"});
  EXPECT_EQ(many.exit_code, 127);
  EXPECT_THAT(many.err, HasSubstr("usable cores"));
}

TEST(DunlinRun, JobsDoNotBindToTheSameCores) {
  const int cores = host_topology().cores;
  if (cores < 2) GTEST_SKIP() << "one usable core";
  const TempFolder folder;
  const std::map<std::string, std::string> together{{"XDG_RUNTIME_DIR", folder.path().string()},
                                                    {"DUNLIN_LOG_LEVEL", "info"}};
  const char* const script = "grep Cpus_allowed_list /proc/self/status";
  const std::string everywhere = run_script(1, script, {"--bind", "none", "--no-tag"}).out;
  {
    RunningCommand first({program("dunlin-run"), "-n", "2", "sh", "-c", "echo bound; sleep 1000"},
                         together);
    ASSERT_TRUE(first.wait_for_output("bound", 20s));
    const CommandResult second = run_script(1, "true", {"--bind", "core"}, together);
    EXPECT_EQ(second.exit_code, 0) << "a single rank isn't bound";
    const CommandResult unbound = run_script(2, script, {"--no-tag"}, together);
    EXPECT_EQ(unbound.out, everywhere + everywhere);
    EXPECT_THAT(unbound.err, HasSubstr("no rank is bound, as other jobs have bound theirs"));
    const CommandResult refused = run_script(2, "true", {"--bind", "core"}, together);
    EXPECT_EQ(refused.exit_code, 127);
    EXPECT_THAT(refused.err, HasSubstr("of which other jobs have bound their ranks to"));
    kill(first.pid(), SIGKILL);
    (void)first.wait(20s);
  }
  const CommandResult after = run_script(2, script, {"--no-tag"}, together);
  EXPECT_THAT(after.out, Not(HasSubstr(everywhere)));
}

TEST(DunlinRun, DealsRanksOutWhereTheyShareCores) {
  const int cores = host_topology().cores;
  if (cores < host_topology().host_cores) GTEST_SKIP() << "not all of the host's cores";
  const TempFolder folder;  // jobs outside it have taken no cores
  const std::map<std::string, std::string> alone{{"XDG_RUNTIME_DIR", folder.path().string()}};
  for (const int ranks : {cores, cores + 1, 3 * cores}) {
    const CommandResult result = run_script(ranks, "grep Cpus_allowed_list /proc/self/status",
                                            {"--bind", "shared", "--no-tag"}, alone);
    EXPECT_EQ(result.exit_code, 0);
    std::map<std::string, int> ranks_by_core;
    for (const std::string& line : sorted_lines(result.out)) ++ranks_by_core[line];
    EXPECT_THAT(ranks_by_core, SizeIs(static_cast<std::size_t>(cores))) << result.out;
    for (const auto& [core, number] : ranks_by_core) {
      EXPECT_GE(number, ranks / cores) << core;
      EXPECT_LE(number, (ranks + cores - 1) / cores) << core;
    }
  }
}

}  // namespace
}  // namespace dunlin::testing
