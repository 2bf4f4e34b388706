// Outages between ranks and their coordinator, and how they differ from deaths. Over real sockets,
// through a network that falls silent, is cut, and heals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

#include "runtime/bootstrap/constants.h"
#include "tests/runtime/bootstrap/broken_path.h"
#include "tests/runtime/bootstrap/coordinator_job.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr Duration kHeartbeat = 20ms;
constexpr Duration kForever = std::chrono::hours(1);

std::unique_ptr<Coordinator> coordinator_with(int size, Duration grace) {
  return Coordinator::start({.size = size,
                             .job_id = "test",
                             .secret = kSecret,
                             .heartbeat = kHeartbeat,
                             .grace = grace,
                             .listen = {"127.0.0.1", 0}})
      .value();
}

// A rank behind the path. `is_remote`: it looks like one on another host, whose process nobody here
// can see.
JoinPlan plan_behind(const BrokenPath& path, int rank, int size, bool is_remote) {
  JoinPlan plan;
  plan.job.rank = Rank(rank);
  plan.job.size = size;
  plan.coordinator = {path.entrance()};
  plan.secret = kSecret;
  plan.host = Rank();
  plan.timeout = kTimeout;
  if (is_remote) plan.process.space = "another host";
  return plan;
}

template <typename Condition>
bool comes_true(Condition&& condition) {
  for (const TimePoint deadline = soon(); !condition(); std::this_thread::sleep_for(1ms)) {
    if (SteadyClock().now() >= deadline) return false;
  }
  return true;
}

void send_numbered(Mail& mail, Rank to, int first, int end) {
  for (int number = first; number < end; ++number)
    mail.send(MailTopic::kVerbs, to, as_bytes(std::to_string(number)));
}

void expect_numbered(Mail& mail, int end) {
  for (int number = 0; number < end; ++number) {
    std::optional<MailMessage> message;
    ASSERT_TRUE(comes_true([&] {
      message = mail.receive(MailTopic::kVerbs);
      return message.has_value();
    })) << "message "
        << number << " is missing";
    const std::string text(reinterpret_cast<const char*>(message->text.data()),
                           message->text.size());
    EXPECT_EQ(text, std::to_string(number));
  }
  EXPECT_TRUE(mail.is_empty(MailTopic::kVerbs));
}

// While it exists, what becomes of connections is logged, too.
class VerboseLog {
 public:
  VerboseLog() { logger().set_level(spdlog::level::info); }
  ~VerboseLog() { logger().set_level(before_); }
  VerboseLog(const VerboseLog&) = delete;
  VerboseLog& operator=(const VerboseLog&) = delete;

 private:
  const spdlog::level::level_enum before_ = logger().level();
};

// Two ranks, the second behind a path. Notes whether any of them ever counts the other as gone.
class Outage : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    coordinator = coordinator_with(2, kForever);
    path.emplace(coordinator->address());
    std::thread other(
        [&] { second = TcpBootstrap::join(plan_behind(*path, 1, 2, GetParam())).value(); });
    first = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
    other.join();
    for (auto* const each : {first.get(), second.get()})
      each->peers().add_listener([this, each] {
        if (each->peers().is_anybody_gone()) is_anybody_gone = true;
      });
  }
  void TearDown() override {
    EXPECT_FALSE(is_anybody_gone);
    path->heal();
    std::thread other([&] { second.reset(); });
    first.reset();
    other.join();
  }

  LogCapture log;  // outlives all threads that log
  std::unique_ptr<Coordinator> coordinator;
  std::optional<BrokenPath> path;
  std::unique_ptr<Bootstrap> first;
  std::unique_ptr<Bootstrap> second;
  std::atomic<bool> is_anybody_gone{false};
};

// For so long that the rank gives its connection up and makes a new one.
TEST_P(Outage, SilenceLosesNothing) {
  const VerboseLog verbose;
  const int before = path->connections();
  send_numbered(first->mail(), Rank(1), 0, 50);
  path->silence();
  const std::size_t logged_before = log.text().size();
  send_numbered(first->mail(), Rank(1), 50, 100);
  send_numbered(second->mail(), Rank(0), 0, 100);
  std::thread request(
      [&] { EXPECT_TRUE(second->publish("during the outage", as_bytes("value")).is_ok()); });
  ASSERT_TRUE(comes_true([&] { return first->peers().state(Rank(1)) == PeerState::kStalled; }));
  EXPECT_TRUE(comes_true([&] {
    return log.text().find("rank 1 has lost its connection", logged_before) != std::string::npos;
  }));
  path->heal();
  request.join();
  expect_numbered(first->mail(), 100);
  expect_numbered(second->mail(), 100);
  EXPECT_TRUE(first->lookup("during the outage", kTimeout).is_ok());
  EXPECT_EQ(second->publish("during the outage", {}).code(), Code::kAlreadyExists);
  EXPECT_TRUE(comes_true([&] { return first->peers().state(Rank(1)) == PeerState::kAlive; }));
  EXPECT_GT(path->connections(), before);
}

// Connections that break at any moment: a request is carried out once.
TEST_P(Outage, CutsLoseNothing) {
  constexpr int kCuts = 30;
  std::atomic<bool> is_over{false};
  std::thread breaker([&] {
    for (int i = 0; i < kCuts; ++i) {
      const int before = path->connections();
      path->cut();
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 7));
      path->heal();
      EXPECT_TRUE(comes_true([&] { return path->connections() > before; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
    }
    is_over = true;
  });
  int count = 0;
  for (; !is_over; ++count) {
    const std::string key = "key " + std::to_string(count);
    send_numbered(first->mail(), Rank(1), count, count + 1);
    send_numbered(second->mail(), Rank(0), count, count + 1);
    // Carried out twice, it would say that the key exists.
    const Status status = second->publish(key, as_bytes(key));
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_TRUE(first->lookup(key, kTimeout).is_ok());
  }
  breaker.join();
  expect_numbered(first->mail(), count);
  expect_numbered(second->mail(), count);
}

// What a caller has given up during an outage does not happen after it.
TEST_P(Outage, WhatWasGivenUpIsVoid) {
  const auto check = [&](const std::function<Status(Bootstrap&, Duration)>& call) {
    path->cut();
    EXPECT_EQ(call(*second, 0s).code(), Code::kDeadlineExceeded);
    std::atomic<bool> is_waiting{false};
    std::thread other([&] {
      const int chore = first->add_chore([&] { is_waiting = true; });
      const Status status = call(*first, kTimeout);
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      first->remove_chore(chore);
    });
    EXPECT_TRUE(comes_true([&] { return is_waiting.load(); }));
    path->heal();
    // If the first rank had met the void call, it would not be there any more.
    EXPECT_EQ(second->lookup("nothing", 0s).status().code(), Code::kDeadlineExceeded);
    const Status status = call(*second, kTimeout);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    other.join();
  };
  check([](Bootstrap& bootstrap, Duration timeout) { return bootstrap.barrier("meet", timeout); });
  check([](Bootstrap& bootstrap, Duration timeout) { return bootstrap.reform(timeout).status(); });
  EXPECT_EQ(first->membership().epoch, 1U);
  EXPECT_EQ(second->membership().epoch, 1U);
}

// For longer than the answer to a leave takes otherwise.
TEST_P(Outage, ALeaveArrivesAfterIt) {
  path->cut();
  std::thread leaving([&] { second->leave(); });
  std::this_thread::sleep_for(2 * kAnswerSlack);
  EXPECT_TRUE(first->peers().is_present(Rank(1)));
  path->heal();
  leaving.join();
  EXPECT_TRUE(comes_true([&] { return is_anybody_gone.load(); }));
  EXPECT_EQ(first->peers().state(Rank(1)), PeerState::kLeft);
  is_anybody_gone = false;  // as it should be
}

INSTANTIATE_TEST_SUITE_P(Hosts, Outage, ::testing::Bool(), [](const auto& is_remote) {
  return is_remote.param ? "OnAnotherHost" : "OnThisHost";
});

// The grace leaves the rank two seconds to notice that it is cut off, even on a busy host.
TEST(OutOfReach, ARankIsCutOffBeforeItCountsAsDead) {
  const auto coordinator = coordinator_with(2, 8s);
  BrokenPath path(coordinator->address());
  std::unique_ptr<Bootstrap> second;
  std::thread other([&] { second = TcpBootstrap::join(plan_behind(path, 1, 2, true)).value(); });
  const auto first = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
  other.join();
  bool is_told = false;
  bool was_cut_off_first = false;
  first->peers().add_listener([&] {
    if (first->peers().is_present(Rank(1)) || std::exchange(is_told, true)) return;
    was_cut_off_first = second->fences().is_cut_off();
  });
  path.cut();
  EXPECT_THAT(first->barrier("never", 3 * kTimeout).to_string(),
              HasSubstr("these ranks are dead: 1"));
  EXPECT_THAT(first->peers().describe(Rank(1)), HasSubstr("it has had no connection for"));
  EXPECT_TRUE(was_cut_off_first);
  EXPECT_THAT(second->fences().check().to_string(), HasSubstr("out of contact"));
  EXPECT_EQ(second->barrier("never", kTimeout).code(), Code::kUnavailable);
}

TEST(OutOfReach, ARankThatComesBackTooLateIsToldSo) {
  const auto coordinator = coordinator_with(2, kForever);
  BrokenPath path(coordinator->address());
  std::unique_ptr<Bootstrap> second;
  std::thread other([&] { second = TcpBootstrap::join(plan_behind(path, 1, 2, true)).value(); });
  const auto first = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
  other.join();
  path.cut();
  coordinator->declare_dead(Rank(1), "it had been away");
  EXPECT_EQ(first->barrier("never", kTimeout).code(), Code::kPeerDead);
  EXPECT_FALSE(second->fences().is_cut_off());
  path.heal();
  EXPECT_TRUE(comes_true([&] { return second->fences().is_cut_off(); }));
  EXPECT_THAT(second->fences().check().to_string(), HasSubstr("count"));
}

// An attempt to return that is in progress when a rank is cut off may succeed after that. The rank
// does not come back all the same, and the others hear of it.
TEST(CutOff, ARankThatIsTakenBackTooLateIsDead) {
  const auto coordinator = coordinator_with(2, 2s);
  BrokenPath path(coordinator->address());
  std::unique_ptr<Bootstrap> second;
  std::thread other([&] { second = TcpBootstrap::join(plan_behind(path, 1, 2, true)).value(); });
  const auto first = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
  other.join();
  path.silence();
  EXPECT_TRUE(comes_true([&] { return second->fences().is_cut_off(); }));
  path.heal();
  EXPECT_THAT(first->barrier("never", kTimeout).to_string(), HasSubstr("these ranks are dead: 1"));
}

// The kernel of a process that has ended refuses what is sent after its FIN. That is the end of a
// process all the same.
TEST(FrameSockets, ARefusalAfterAFinIsAnEnd) {
  Endpoint address{"127.0.0.1", 0};
  const Fd listener = listen_on(address).value();
  FrameSocket here(connect_to(address, soon()).value());
  ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon()));
  Fd there(accept(listener.get(), nullptr, nullptr));
  there.reset();
  ASSERT_TRUE(wait_for(here.fd(), POLLRDHUP, soon()));
  ASSERT_TRUE(here.send({}).is_ok());
  ASSERT_TRUE(wait_for(here.fd(), POLLERR, soon()));
  EXPECT_EQ(here.send({}).code(), Code::kClosed);
}

// The system reports a RST once. A send after that must not take it for a FIN.
TEST(FrameSockets, ARefusalIsNoEndForTheNextSend) {
  Endpoint address{"127.0.0.1", 0};
  const Fd listener = listen_on(address).value();
  FrameSocket here(connect_to(address, soon()).value());
  ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon()));
  FrameSocket there(Fd(accept(listener.get(), nullptr, nullptr)));
  there.abandon();
  ASSERT_TRUE(wait_for(here.fd(), POLLERR, soon()));
  const Status received = here.receive();
  EXPECT_TRUE(received.is_error());
  EXPECT_NE(received.code(), Code::kClosed) << received.to_string();
  EXPECT_EQ(here.send({}).code(), received.code());
}

// A name with two addresses, of which the first one does not answer.
TEST(FrameSockets, AnAddressThatDoesNotAnswerLeavesTimeForTheNext) {
  Endpoint silent{"::1", 0};
  const auto full = listen_on(silent);
  if (!full || ::listen(full->get(), 0) != 0) GTEST_SKIP() << "no IPv6";
  std::vector<Fd> crowd;
  const TimePoint give_up = soon();
  for (bool is_full = false; !is_full;) {
    ASSERT_LT(SteadyClock().now(), give_up);
    auto guest = connect_to(silent, SteadyClock().now() + 100ms);
    is_full = !guest;
    if (guest) crowd.push_back(std::move(*guest));
  }
  Endpoint answers{"127.0.0.1", silent.port};
  const auto listener = listen_on(answers);
  if (!listener) GTEST_SKIP() << "the port is in use at the other address";
  const auto connected = connect_to({"localhost", silent.port}, SteadyClock().now() + 10s);
  ASSERT_TRUE(connected) << connected.status().to_string();
  EXPECT_EQ(peer_address(connected->get()), answers.to_string());
}

std::string step(int number) {
  return "step " + std::to_string(number);
}

// A process as rank 1, which joins through a path, and meets the other rank in a barrier each time
// that one has published the step.
// `space`: see ProcessId; null: the real one. `spawn`: how the member makes a child once it has
// joined; null: it makes none.
pid_t start_member(int entrance_pipe, int barriers, int size = 2, const char* space = nullptr,
                   pid_t (*spawn)() = nullptr) {
  const pid_t child = fork();
  if (child != 0) return child;
  Endpoint entrance{"127.0.0.1", 0};
  if (read(entrance_pipe, &entrance.port, sizeof entrance.port) != sizeof entrance.port) _exit(2);
  JoinPlan plan;
  plan.job.rank = Rank(1);
  plan.job.size = size;
  if (space != nullptr) plan.process.space = space;
  plan.coordinator = {entrance};
  plan.secret = kSecret;
  plan.host = Rank();
  plan.timeout = kTimeout;
  auto joined = TcpBootstrap::join(std::move(plan));
  if (!joined) _exit(3);
  if (spawn != nullptr && spawn() == 0) {
    pause();
    _exit(0);
  }
  for (int i = 0; i < barriers; ++i) {
    if (!(*joined)->lookup(step(i), kTimeout).is_ok()) _exit(4);
    if (!(*joined)->barrier("meet", kTimeout).is_ok()) _exit(5);
  }
  joined->reset();
  _exit(0);
}

// Tells a member where to join, through the pipe that it reads.
void tell_entrance(int (&ends)[2], std::uint16_t port) {
  ASSERT_EQ(write(ends[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  close(ends[0]);
  close(ends[1]);
}

// A job of this process and a child, with a path between the child and the coordinator.
class Processes : public ::testing::Test {
 protected:
  void start(Duration grace, int barriers) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    child = start_member(ends[0], barriers);
    ASSERT_GT(child, 0);
    coordinator = coordinator_with(2, grace);
    path.emplace(coordinator->address());
    const std::uint16_t port = path->entrance().port;
    ASSERT_NO_FATAL_FAILURE(tell_entrance(ends, port));
    self = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
  }
  Status meet(int number) {
    EXPECT_TRUE(self->publish(step(number), {}).is_ok());
    return self->barrier("meet", kTimeout);
  }
  int exit_code() {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  pid_t child = -1;
  std::unique_ptr<Coordinator> coordinator;
  std::optional<BrokenPath> path;
  std::unique_ptr<Bootstrap> self;
};

// The path is silent, so that not even the end of the connection arrives.
TEST_F(Processes, AKilledOneIsDeadAtOnceAndByName) {
  start(kForever, 2);
  ASSERT_TRUE(meet(0).is_ok());
  path->silence();
  kill(child, SIGKILL);
  EXPECT_THAT(self->barrier("meet", kTimeout).to_string(), HasSubstr("these ranks are dead: 1"));
  EXPECT_EQ(self->peers().describe(Rank(1)),
            "dead: process " + std::to_string(child) + " ended before it left the job");
  EXPECT_EQ(WTERMSIG(exit_code()), SIGKILL);
}

// The process is stopped for longer than a rank may be out of contact, and has no connection for
// most of that time.
TEST_F(Processes, AStoppedOneIsNeverDead) {
  constexpr Duration kGrace = 1s;
  start(kGrace, 2);
  ASSERT_TRUE(meet(0).is_ok());
  kill(child, SIGSTOP);
  ASSERT_TRUE(comes_true([&] { return self->peers().state(Rank(1)) == PeerState::kStalled; }));
  path->cut();
  std::this_thread::sleep_for(3 * kGrace);
  EXPECT_EQ(self->peers().state(Rank(1)), PeerState::kStalled);
  path->heal();
  kill(child, SIGCONT);
  EXPECT_TRUE(meet(1).is_ok());
  EXPECT_EQ(exit_code(), 0);
}

// The coordinator is on another host than the member, and no other rank is on that host. A child of
// the member does not keep its connection, which ends with the member: by a RST if something that
// had arrived was not read yet, so that the death is known after the grace.
TEST(Forks, KeepNoConnectionOfTheirParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = start_member(ends[0], 2, 2, "another host", fork);
  ASSERT_GT(child, 0);
  setpgid(child, child);
  const auto coordinator = coordinator_with(2, 2s);
  const std::uint16_t port = coordinator->address().port;
  ASSERT_NO_FATAL_FAILURE(tell_entrance(ends, port));
  const auto self = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
  // The member looks for this step once it has forked.
  EXPECT_TRUE(self->publish(step(0), {}).is_ok());
  EXPECT_TRUE(self->barrier("meet", kTimeout).is_ok());
  kill(child, SIGKILL);
  EXPECT_THAT(self->barrier("meet", kTimeout).to_string(), HasSubstr("these ranks are dead: 1"));
  kill(-child, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

// Neither the coordinator, which is on another host than the member, nor the connection tells of
// the death: a child of the member, which no handler of fork() has reached, keeps the connection.
TEST(Neighbors, TellOfADeathBehindAConnectionThatGoesOn) {
  constexpr const char* kElsewhere = "another host";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = start_member(ends[0], 2, 3, kElsewhere, _Fork);
  ASSERT_GT(child, 0);
  setpgid(child, child);
  const auto coordinator = coordinator_with(3, kForever);
  BrokenPath path(coordinator->address());
  const std::uint16_t port = path.entrance().port;
  ASSERT_NO_FATAL_FAILURE(tell_entrance(ends, port));
  std::unique_ptr<Bootstrap> neighbor;
  std::thread other([&] {
    JoinPlan plan = plan_for(*coordinator, 2, 3);
    plan.process.space = kElsewhere;
    neighbor = TcpBootstrap::join(std::move(plan)).value();
  });
  const auto self = TcpBootstrap::join(plan_for(*coordinator, 0, 3)).value();
  other.join();
  neighbor->peers().set_local_pid(Rank(1), child);
  // The member looks for this step once it has forked.
  EXPECT_TRUE(self->publish(step(0), {}).is_ok());
  std::thread third([&] { EXPECT_TRUE(neighbor->barrier("meet", kTimeout).is_ok()); });
  EXPECT_TRUE(self->barrier("meet", kTimeout).is_ok());
  third.join();
  kill(child, SIGKILL);
  EXPECT_THAT(self->barrier("meet", kTimeout).to_string(), HasSubstr("these ranks are dead: 1"));
  kill(-child, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  std::thread last([&] { neighbor.reset(); });
  last.join();
}

}  // namespace
}  // namespace dunlin::bootstrap
