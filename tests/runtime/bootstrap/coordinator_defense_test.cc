// The coordinator and its ranks among programs that do not belong to the job.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "runtime/bootstrap/constants.h"
#include "tests/runtime/bootstrap/coordinator_job.h"
#include "tests/support/ports.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

// Sockets that connect, send nothing, and connect again when they have been closed.
class SilentCrowd {
 public:
  SilentCrowd(const Coordinator& coordinator, std::size_t size) : coordinator_(coordinator) {
    for (std::size_t i = 0; i < size; ++i) crowd_.push_back(connect_raw(coordinator));
    thread_ = std::thread([this] {
      while (!is_over_) stay();
    });
  }
  ~SilentCrowd() {
    is_over_ = true;
    thread_.join();
  }

 private:
  void stay() {
    std::vector<pollfd> entries;
    for (const Fd& each : crowd_) entries.push_back({each.get(), POLLIN, 0});
    poll(entries.data(), entries.size(), 10);
    for (std::size_t i = 0; i < crowd_.size() && !is_over_; ++i) {
      char byte[256];
      if (entries[i].revents == 0 || recv(crowd_[i].get(), byte, sizeof byte, 0) > 0) continue;
      crowd_[i].reset();
      if (auto again = connect_to(coordinator_.address(), soon())) crowd_[i] = std::move(*again);
    }
  }

  const Coordinator& coordinator_;
  std::vector<Fd> crowd_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST(CoordinatorDefense, StrangersThatConnectAgainAndAgainBlockNoRank) {
  const auto coordinator = start_coordinator(2);
  const SilentCrowd crowd(*coordinator, 500);
  expect_that_a_job_still_starts(*coordinator, 2);
}

// A program that sends the same messages to everything that connects to it.
class Impostor {
 public:
  explicit Impostor(const std::vector<Message>& answers) {
    for (const Message& each : answers) {
      const Bytes frame = encode(each);
      answer_.insert(answer_.end(), frame.begin(), frame.end());
    }
    listener_ = listen_on(address_).value();
    thread_ = std::thread([this] {
      while (!is_over_) serve();
    });
  }
  ~Impostor() { stop(); }
  void stop() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    listener_.reset();
  }
  const Endpoint& address() const { return address_; }
  bool await_visit() const {
    const TimePoint deadline = soon();
    while (visits_ == 0 && SteadyClock().now() < deadline) std::this_thread::yield();
    return visits_ > 0;
  }

 private:
  void serve() {
    if (!wait_for(listener_.get(), POLLIN, SteadyClock().now() + 10ms)) return;
    const Fd guest(accept(listener_.get(), nullptr, nullptr));
    char hello[1024];
    if (recv(guest.get(), hello, sizeof hello, 0) <= 0) return;
    (void)send(guest.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
    ++visits_;
  }

  Bytes answer_;
  // A coordinator may listen there afterwards.
  Endpoint address_{"127.0.0.1", testing::free_port()};
  Fd listener_;
  std::atomic<bool> is_over_{false};
  std::atomic<int> visits_{0};
  std::thread thread_;
};

JoinPlan plan_for(const Endpoint& address) {
  JoinPlan plan;
  plan.job.rank = Rank(0);
  plan.coordinator = {address};
  plan.secret = kSecret;
  plan.timeout = kTimeout;
  return plan;
}

// How a join has ended that no coordinator has accepted, and the timeout that it had.
struct VainJoin {
  std::string error;
  Duration timeout{};
};

// Joins with this timeout. On a busy host, it may pass before the other side has answered at all:
// then the join is repeated with a longer one.
VainJoin join_in_vain(Duration timeout, const std::function<JoinPlan()>& make_plan) {
  for (;; timeout *= 10) {
    JoinPlan plan = make_plan();
    plan.timeout = timeout;
    const std::string error = error_of(std::move(plan));
    // An answer to an earlier attempt of the same join is named, too.
    const bool is_unanswered = error.find(": no answer to") != std::string::npos &&
                               error.find("; before, ") == std::string::npos;
    if (!is_unanswered || timeout >= kTimeout) return {error, timeout};
  }
}

Message rejection(const std::string& text) {
  return {.type = MessageType::kReject, .code = Code::kAlreadyExists, .text = text};
}

TEST(CoordinatorDefense, ARefusalWithoutAProofDoesNotEndTheJoin) {
  Impostor impostor({rejection("rank 0 has joined before")});
  Endpoint address = impostor.address();
  std::thread member([&] {
    const auto joined = TcpBootstrap::join(plan_for(address));
    EXPECT_TRUE(joined.is_ok()) << joined.status().to_string();
  });
  EXPECT_TRUE(impostor.await_visit());
  impostor.stop();
  const auto coordinator =
      Coordinator::start({.size = 1, .secret = kSecret, .heartbeat = 50ms, .listen = address});
  EXPECT_TRUE(coordinator.is_ok()) << coordinator.status().to_string();
  member.join();
}

TEST(CoordinatorDefense, ARefusalWithoutAProofIsNamedInTheEnd) {
  LogCapture log;
  const Impostor impostor({rejection("no\x1b[2J\r\nway")});
  const auto [error, timeout] = join_in_vain(300ms, [&] { return plan_for(impostor.address()); });
  EXPECT_THAT(error, HasSubstr(fmt::format("has not answered within {:g} s", to_seconds(timeout))));
  EXPECT_THAT(error, HasSubstr("no\\x1b[2J\\x0d\\x0away"));
  EXPECT_THAT(log.text(), HasSubstr("no\\x1b[2J\\x0d\\x0away"));
}

TEST(CoordinatorDefense, AWelcomeWithoutAProofDoesNotEndTheJoin) {
  const Impostor impostor({{.type = MessageType::kChallenge, .value = Bytes(32)},
                           {.type = MessageType::kWelcome, .value = Bytes(32)}});
  JoinPlan plan = plan_for(impostor.address());
  plan.timeout = 300ms;
  EXPECT_THAT(error_of(std::move(plan)), HasSubstr("has not answered within 0.3 s"));
}

// The rank's timeout is far away.
TEST(CoordinatorDefense, ARankWithWrongClaimsHearsItAtOnce) {
  const auto coordinator = start_coordinator(1);
  for (const int rank : {0, 1}) {
    const std::string error = error_of(plan_for(*coordinator, rank, 2));
    EXPECT_THAT(error, HasSubstr("expects a job of 2 ranks, this one has 1"));
    EXPECT_THAT(error, Not(HasSubstr("has not answered within")));
  }
}

TEST(CoordinatorDefense, AWrongSecretIsWarnedOfAtOnceAndAnErrorInTheEnd) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  const auto [error, timeout] = join_in_vain(1s, [&] {
    JoinPlan plan = plan_for(*coordinator, 0, 1);
    plan.secret = "another horse battery staple";
    return plan;
  });
  EXPECT_THAT(error, HasSubstr("permission_denied"));
  EXPECT_THAT(error, HasSubstr("wrong job secret"));
  EXPECT_THAT(log.text(), HasSubstr(fmt::format("trying again until the timeout of {:g} s",
                                                to_seconds(timeout))));
}

TEST(CoordinatorDefense, ManyStrangersMakeFewLines) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  const TimePoint begin = SteadyClock().now();
  const std::string garbage = "GET / HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 300; ++i) {
    const Fd socket = connect_raw(*coordinator);
    ASSERT_GT(send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(is_closed_soon(socket));
  }
  EXPECT_TRUE(log.await("more connections refused since"));
  const Duration took = SteadyClock().now() - begin;
  const std::string text = log.text();
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), took / 1s + 2) << text;
}

// A member speaks the protocol by itself: it asks for values and reads none of them.
TEST(CoordinatorDefense, AMemberThatReadsNothingIsDisconnected) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  Refusal refusal = Refusal::kNone;
  auto member = authenticate(FrameSocket(connect_raw(*coordinator)),
                             {.rank = Rank(0),
                              .size = 1,
                              .job_id = "",
                              .secret = kSecret,
                              .process = ProcessId::of_self().to_string()},
                             soon(), soon(), refusal)
                    .value();
  FrameSocket& socket = member.socket;
  const auto ask = [&socket](const Message& message) {
    Status sent = socket.send(message);
    while (sent && socket.has_unsent() && wait_for(socket.fd(), POLLOUT, soon()))
      sent = socket.flush();
    return sent;
  };
  ASSERT_TRUE(ask({.type = MessageType::kJoin, .request = 1}));
  ASSERT_TRUE(ask({.type = MessageType::kPublish, .text = "key", .value = Bytes(kMaxValueBytes)}));
  std::uint64_t request = 2;
  while (request < 10'000 &&
         ask({.type = MessageType::kLookup, .request = request, .text = "key"})) {
    ++request;
  }
  EXPECT_TRUE(log.await("the peer does not read its messages"));
}

}  // namespace
}  // namespace dunlin::bootstrap
