// dunlin-perf without a launcher: one process listens, others connect to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/ports.h"

namespace dunlin::testing {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Variables = std::map<std::string, std::string>;

const Variables kShm{{"DUNLIN_TRANSPORTS", "shm"}};
const Variables kTcp{{"DUNLIN_TRANSPORTS", "ucx"}, {"UCX_TLS", "tcp,self"}};

std::vector<std::string> command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program("dunlin-perf"));
  return arguments;
}

// A listener at a free port of the loopback interface.
class Listener {
 public:
  explicit Listener(std::vector<std::string> arguments = {}, const Variables& variables = kShm) {
    arguments.insert(arguments.end(), {"--listen", "127.0.0.1:0"});
    running_ = std::make_unique<RunningCommand>(command(arguments), variables);
    EXPECT_TRUE(running_->wait_for_output("listening at 127.0.0.1:", 20s));
    EXPECT_TRUE(running_->wait_for_output("\n", 20s));
  }
  // Its output says at which port.
  std::string endpoint() {
    const std::string& text = running_->out();
    const auto begin = text.find("127.0.0.1:");
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  bool prints(const std::string& text) { return running_->wait_for_output(text, 20s); }
  void interrupt() { kill(running_->pid(), SIGINT); }
  CommandResult wait() { return running_->wait(20s); }

 private:
  std::unique_ptr<RunningCommand> running_;
};

CommandResult connect(Listener& listener, std::vector<std::string> arguments,
                      const Variables& variables = kShm) {
  arguments.insert(arguments.end(), {"--connect", listener.endpoint()});
  return run_command(command(arguments), variables);
}

std::vector<Json> lines_of(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<Json> lines;
  std::istringstream stream(result.out);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(Meeting, TheClientLeadsAndPrints) {
  Listener listener({"put-notify"});
  const CommandResult client =
      connect(listener, {"put-notify", "--size", "8", "--iterations", "40"});
  EXPECT_EQ(client.exit_code, 0) << client.err;
  EXPECT_THAT(client.out, HasSubstr("over shm: put-notify"));
  const CommandResult served = listener.wait();
  EXPECT_EQ(served.exit_code, 0) << served.err;
  EXPECT_THAT(served.out, HasSubstr("every process that reaches this port can take part"));
  EXPECT_THAT(served.out, HasSubstr(": put-notify is done"));
  EXPECT_THAT(served.out, Not(HasSubstr("ping-pong")));
}

TEST(Meeting, AListenerServesOneClientAfterTheOther) {
  Listener listener({"--keep"});
  for (const char* bench : {"put", "put-latency", "put-notify", "notify", "channel", "barrier"}) {
    const auto lines = lines_of(connect(listener, {bench, "--iterations", "40", "--json"}));
    ASSERT_THAT(lines, Not(IsEmpty()));
    EXPECT_EQ(lines[0].at("bench"), bench);
    EXPECT_EQ(lines[0].at("transport"), "shm");
    EXPECT_EQ(lines[0].at("ranks"), 2);
  }
  const auto reduces =
      lines_of(connect(listener, {"consistency", "--reduces", "20", "--count", "100", "--json"}));
  EXPECT_THAT(reduces, SizeIs(3));
  EXPECT_TRUE(listener.prints("consistency is done"));
  listener.interrupt();
  EXPECT_EQ(listener.wait().exit_code, 128 + SIGINT);
}

TEST(Meeting, OverTcpToo) {
  if (!HAVE_UCX) GTEST_SKIP() << "this build has no UCX";
  Listener listener({"--keep"}, kTcp);
  for (const char* bench : {"put", "put-latency", "put-notify", "channel"}) {
    const auto lines =
        lines_of(connect(listener, {bench, "--size", "8,4K", "--duration", "0.1", "--json"}, kTcp));
    ASSERT_THAT(lines, SizeIs(2)) << bench;
    EXPECT_EQ(lines[0].at("transport"), "ucx");
  }
  EXPECT_THAT(
      lines_of(connect(listener,
                       {"put", "--size", "4K", "--bidirectional", "--iterations", "100", "--json"},
                       kTcp)),
      SizeIs(1));
}

TEST(Meeting, TheClientMayComeFirst) {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  RunningCommand client(command({"notify", "--iterations", "40", "--connect", endpoint}), kShm);
  std::this_thread::sleep_for(300ms);
  RunningCommand listener(command({"--listen", endpoint}), kShm);
  const CommandResult result = client.wait(20s);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(listener.wait(20s).exit_code, 0);
}

TEST(Meeting, NobodyThereIsToldSoon) {
  Variables variables = kShm;
  variables["DUNLIN_BOOTSTRAP_TIMEOUT"] = "300ms";
  const CommandResult result =
      run_command(command({"put", "--connect", "127.0.0.1:1"}), variables, 10s);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("no listener at 127.0.0.1:1"));
  EXPECT_THAT(result.err, HasSubstr("Connection refused"));
}

TEST(Meeting, ThePortIsTaken) {
  Listener listener;
  const CommandResult second =
      run_command(command({"put", "--keep", "--listen", listener.endpoint()}), kShm, 10s);
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("cannot listen at " + listener.endpoint()));
}

TEST(Meeting, ASecretHasToBeTheSame) {
  Variables secret = kShm;
  secret["DUNLIN_JOB_SECRET"] = "open sesame, please";
  Listener listener({}, secret);
  const CommandResult stranger = connect(listener, {"notify"});
  EXPECT_EQ(stranger.exit_code, 1);
  EXPECT_THAT(stranger.err, HasSubstr("has another secret (none is set here)"));
  const CommandResult friendly = connect(listener, {"notify", "--iterations", "40"}, secret);
  EXPECT_EQ(friendly.exit_code, 0) << friendly.err;
  const CommandResult served = listener.wait();
  EXPECT_EQ(served.exit_code, 0);
  EXPECT_THAT(served.out, Not(HasSubstr("anybody")));
}

TEST(Meeting, BothSidesHearOfADisagreement) {
  const std::vector<std::tuple<std::vector<std::string>, std::vector<std::string>, std::string>>
      cases = {
          {{"put"}, {"notify"}, R"(the benchmark: "put" at the listener, "notify" at the client)"},
          {{"put", "--size", "8"},
           {"put", "--size", "64"},
           "--size: [8] at the listener, [64] at the client"},
          {{"put", "--no-check"},
           {"put"},
           "--check: false at the listener, the default at the client"},
          {{"put", "--queue-depth", "4"},
           {"put", "--depth", "5"},
           "--depth: 4 at the listener, 5 at the client"}};
  for (const auto& [listens, connects, text] : cases) {
    Listener listener(listens);
    const CommandResult client = connect(listener, connects);
    EXPECT_EQ(client.exit_code, 2);
    EXPECT_THAT(client.err, HasSubstr(text));
    const CommandResult served = listener.wait();
    EXPECT_EQ(served.exit_code, 2);
    EXPECT_THAT(served.err, HasSubstr(text));
  }
}

TEST(Meeting, OptionsThatAgreeMayStandOnBothSides) {
  Listener listener({"put", "--size", "8", "--iterations", "40", "--bidirectional"});
  const CommandResult client = connect(
      listener, {"put", "--size", "8", "--iterations", "40", "--bidirectional", "--warmup", "3"});
  EXPECT_EQ(client.exit_code, 0) << client.err;
  EXPECT_EQ(listener.wait().exit_code, 0);
}

TEST(Meeting, AClientThatDiesEndsTheListener) {
  Listener listener({"put"});
  RunningCommand client(
      command({"put", "--size", "8", "--duration", "60", "--connect", listener.endpoint()}), kShm);
  ASSERT_TRUE(listener.prints("serving "));
  ASSERT_TRUE(client.wait_for_output("GB/s", 20s));
  kill(client.pid(), SIGKILL);
  const CommandResult served = listener.wait();
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(served.err, HasSubstr("peer_dead"));
}

TEST(Meeting, AnotherClientIsToldThatItIsBusy) {
  Listener listener;
  RunningCommand first(
      command({"put", "--size", "8", "--duration", "60", "--connect", listener.endpoint()}), kShm);
  ASSERT_TRUE(listener.prints("serving "));
  Variables variables = kShm;
  variables["DUNLIN_BOOTSTRAP_TIMEOUT"] = "3s";
  const CommandResult second = connect(listener, {"put"}, variables);
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("serves another client"));
  listener.interrupt();
  const CommandResult ended = first.wait(20s);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("peer_dead"));
}

TEST(Meeting, LaunchersVariablesContradict) {
  for (const char* name : {"DUNLIN_RANK", "DUNLIN_SIZE", "RANK", "PMIX_RANK"}) {
    for (const char* option : {"--listen=0", "--connect=localhost"}) {
      const CommandResult result = run_command(command({"put", option}), {{name, "0"}}, 10s);
      EXPECT_EQ(result.exit_code, 2) << name;
      EXPECT_THAT(result.err, HasSubstr(std::string(name) + " is set"));
    }
  }
}

}  // namespace
}  // namespace dunlin::testing
