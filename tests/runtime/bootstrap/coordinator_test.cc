// The coordinator and its clients in one process, over real sockets.
#include "runtime/bootstrap/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "runtime/bootstrap/constants.h"
#include "runtime/bootstrap/tcp_bootstrap.h"
#include "tests/runtime/bootstrap/coordinator_job.h"
#include "tests/support/no_threads.h"
#include "tests/support/ports.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Coordinator, EightRanksPublishLookUpAndMeet) {
  const auto coordinator = start_coordinator(8);
  run_job(*coordinator, 8, [](Bootstrap& bootstrap) {
    EXPECT_EQ(bootstrap.job().job_id, "test");
    const auto key = [](int rank) { return "key/" + std::to_string(rank); };
    const Bytes own(static_cast<std::size_t>(1000 * bootstrap.rank().value()), std::byte{7});
    ASSERT_TRUE(bootstrap.publish(key(bootstrap.rank().value()), own).is_ok());
    EXPECT_EQ(bootstrap.publish(key(bootstrap.rank().value()), own).code(), Code::kAlreadyExists);
    for (int rank = 0; rank < 8; ++rank) {
      const auto value = bootstrap.lookup(key(rank), kTimeout);
      ASSERT_TRUE(value.is_ok()) << value.status().to_string();
      EXPECT_EQ(value->size(), static_cast<std::size_t>(1000 * rank));
    }
    for (int round = 0; round < 20; ++round) {
      EXPECT_TRUE(bootstrap.barrier("round", kTimeout).is_ok());
    }
  });
  EXPECT_TRUE(coordinator->wait_until_empty(soon()));
}

// Each rank sends mail to all ranks, itself included, and sleeps until all mail to it has arrived.
// Mail of another topic stays apart.
void exchange_mail(Bootstrap& bootstrap) {
  constexpr int kMessages = 50;
  constexpr auto kTopic = MailTopic::kVerbs;
  Mail& mail = bootstrap.mail();
  for (int number = 0; number < kMessages; ++number) {
    for (int rank = 0; rank < bootstrap.size(); ++rank) {
      const Bytes text(static_cast<std::size_t>(number), static_cast<std::byte>(number));
      mail.send(kTopic, Rank(rank), text);
    }
  }
  std::vector<int> received(static_cast<std::size_t>(bootstrap.size()), 0);
  for (int left = kMessages * bootstrap.size(); left > 0;) {
    pollfd entry{mail.fd(kTopic), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 10'000), 1) << left << " messages are missing";
    while (const auto message = mail.receive(kTopic)) {
      const int number = received[message->from.index()]++;
      EXPECT_EQ(message->text,
                Bytes(static_cast<std::size_t>(number), static_cast<std::byte>(number)));
      --left;
    }
  }
  EXPECT_TRUE(mail.is_empty(kTopic));
  pollfd entry{mail.fd(kTopic), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0) << "readable without mail";
  EXPECT_TRUE(mail.is_empty(MailTopic::kFabric));
  mail.send(MailTopic::kFabric, bootstrap.rank(), as_bytes("open"));
  pollfd other{mail.fd(MailTopic::kFabric), POLLIN, 0};
  ASSERT_EQ(poll(&other, 1, 10'000), 1);
  EXPECT_TRUE(mail.is_empty(kTopic));
  const auto message = mail.receive(MailTopic::kFabric);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->from, bootstrap.rank());
  EXPECT_TRUE(std::ranges::equal(message->text, as_bytes("open")));
  EXPECT_TRUE(bootstrap.barrier("mail", kTimeout).is_ok());
}

TEST(Coordinator, MailArrivesInTheOrderOfItsSender) {
  const auto coordinator = start_coordinator(3);
  run_job(*coordinator, 3, exchange_mail);
}

TEST(InProcessJob, MailArrivesInTheOrderOfItsSender) {
  InProcessJob job(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&job, rank] { exchange_mail(*job.bootstrap(Rank(rank))); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Coordinator, ValuesUpToTheLimitPassAndLargerOnesAreRefused) {
  const auto coordinator = start_coordinator(1);
  run_job(*coordinator, 1, [](Bootstrap& bootstrap) {
    const Bytes largest(kMaxValueBytes, std::byte{9});
    EXPECT_TRUE(bootstrap.publish("largest", largest).is_ok());
    EXPECT_EQ(bootstrap.lookup("largest", kTimeout).value(), largest);
    EXPECT_EQ(bootstrap.publish("larger", Bytes(kMaxValueBytes + 1)).code(),
              Code::kInvalidArgument);
    EXPECT_EQ(bootstrap.publish("", Bytes()).code(), Code::kInvalidArgument);
    EXPECT_THAT(
        bootstrap.lookup("nothing", 10ms).status().to_string(),
        HasSubstr("deadline_exceeded: lookup of 'nothing' for 0.01 s: no rank has published"));
  });
}

TEST(Coordinator, AWrongSecretIsRefusedAndLogged) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  const Status refusal = refusal_of([&] {
    JoinPlan plan = plan_for(*coordinator, 0, 1);
    plan.secret = "wrong";
    return plan;
  });
  EXPECT_THAT(refusal.to_string(), HasSubstr("permission_denied: rank 0 cannot join"));
  EXPECT_TRUE(log.await("refused: wrong job secret"));
  EXPECT_TRUE(log.await("connection from 127.0.0.1:"));
  expect_that_a_job_still_starts(*coordinator, 1);
}

TEST(Coordinator, AMissingSecretIsRefusedAndLogged) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  const Status refusal = refusal_of([&] {
    JoinPlan plan = plan_for(*coordinator, 0, 1);
    plan.secret = "";
    return plan;
  });
  EXPECT_THAT(refusal.to_string(), HasSubstr("wrong job secret"));
  EXPECT_TRUE(log.await("refused: wrong job secret"));
  expect_that_a_job_still_starts(*coordinator, 1);
}

TEST(Coordinator, NeedsASecret) {
  EXPECT_EQ(Coordinator::start({.size = 1, .listen = {"127.0.0.1", 0}}).status().code(),
            Code::kInvalidArgument);
}

TEST(Coordinator, ARankDetectsACoordinatorWithoutTheSecret) {
  const auto impostor =
      Coordinator::start(
          {.size = 1, .secret = "a guess", .heartbeat = 50ms, .listen = {"127.0.0.1", 0}})
          .value();
  const Status refusal = refusal_of([&] { return plan_for(*impostor, 0, 1); });
  EXPECT_THAT(refusal.to_string(), HasSubstr("permission_denied"));
}

TEST(Coordinator, GarbageIsRefusedAndLogged) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  const Fd socket = connect_raw(*coordinator);
  const std::string garbage = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_GT(send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(is_closed_soon(socket));
  EXPECT_TRUE(log.await("refused: this is not Dunlin's protocol"));
  expect_that_a_job_still_starts(*coordinator, 1);
}

TEST(Coordinator, OversizeFramesBeforeAuthenticationAreRefused) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  const Fd socket = connect_raw(*coordinator);
  const Bytes frame = encode({.type = MessageType::kHello, .text = std::string(100'000, 'x')});
  ASSERT_GT(send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(is_closed_soon(socket));
  EXPECT_TRUE(log.await("is larger than the 512 bytes allowed here"));
  expect_that_a_job_still_starts(*coordinator, 1);
}

TEST(Coordinator, RequestsBeforeTheProofAreRefused) {
  LogCapture log;
  const auto coordinator = start_coordinator(1);
  const Fd socket = connect_raw(*coordinator);
  const Bytes frame = encode({.type = MessageType::kPublish, .request = 1, .text = "key"});
  ASSERT_GT(send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(is_closed_soon(socket));
  EXPECT_TRUE(log.await("before authentication"));
}

TEST(Coordinator, HalfOpenConnectionsEndSoonAndBlockNoRank) {
  LogCapture log;
  const auto coordinator = start_coordinator(2);
  // More than the coordinator accepts at once: the others wait in the backlog.
  std::vector<Fd> half_open;
  for (std::size_t i = 0; i < kMaxUnauthenticated + 8; ++i)
    half_open.push_back(connect_raw(*coordinator));
  expect_that_a_job_still_starts(*coordinator, 2);
  EXPECT_TRUE(is_closed_soon(half_open.front()));
  EXPECT_TRUE(log.await("refused: it did not authenticate in time"));
}

TEST(Coordinator, WrongPlacesAreRefusedByName) {
  const auto coordinator = start_coordinator(2);
  EXPECT_THAT(error_of(plan_for(*coordinator, 0, 3)),
              HasSubstr("rank 0 expects a job of 3 ranks, this one has 2"));
  EXPECT_THAT(error_of(plan_for(*coordinator, 2, 2)),
              HasSubstr("rank 2 is outside a job of 2 ranks"));
  JoinPlan other = plan_for(*coordinator, 0, 2);
  other.job.job_id = "another";
  EXPECT_THAT(error_of(std::move(other)), HasSubstr("this is job 'test', not 'another'"));
}

TEST(Coordinator, ARankThatIsTakenIsRefused) {
  const auto coordinator = start_coordinator(1);
  const auto first = TcpBootstrap::join(plan_for(*coordinator, 0, 1)).value();
  EXPECT_THAT(error_of(plan_for(*coordinator, 0, 1)), HasSubstr("rank 0 has joined before"));
  EXPECT_TRUE(first->barrier("unharmed", kTimeout).is_ok());
}

// On a busy host, a short timeout may pass before the coordinator has answered at all. Then another
// job has a longer one, as the coordinator of this one may have admitted the rank meanwhile.
TEST(Coordinator, TheDeadlineNamesTheMissingRanks) {
  std::string error;
  for (Duration timeout = 300ms; timeout <= 30s; timeout *= 10) {
    const auto coordinator = start_coordinator(4);
    JoinPlan plan = plan_for(*coordinator, 1, 4);
    plan.timeout = timeout;
    error = error_of(std::move(plan));
    const bool is_unanswered = error.find("has not answered within") != std::string::npos ||
                               error.find("the coordinator does not answer") != std::string::npos;
    if (!is_unanswered) break;
  }
  EXPECT_THAT(error, HasSubstr("3 of 4 ranks have not joined in time: 0, 2, 3"));
  EXPECT_THAT(error, HasSubstr("deadline_exceeded"));
}

TEST(Coordinator, WithoutACoordinatorTheDeadlineErrorSaysSo) {
  JoinPlan plan;
  {
    const auto gone = start_coordinator(1);
    plan = plan_for(*gone, 0, 1);
  }
  plan.timeout = 200ms;
  EXPECT_THAT(error_of(std::move(plan)),
              HasSubstr("the launcher's coordinator has not answered within 0.2 s"));
}

TEST(Coordinator, ACoordinatorMayStartLater) {
  const Endpoint address{"127.0.0.1", testing::free_port()};
  std::thread member([&] {
    JoinPlan plan;
    plan.job = {.rank = Rank(0), .size = 1};
    plan.coordinator = {address};
    plan.secret = kSecret;
    plan.timeout = kTimeout;
    const auto joined = TcpBootstrap::join(std::move(plan));
    EXPECT_TRUE(joined.is_ok()) << joined.status().to_string();
  });
  const auto coordinator =
      Coordinator::start({.size = 1, .secret = kSecret, .heartbeat = 50ms, .listen = address});
  EXPECT_TRUE(coordinator.is_ok()) << coordinator.status().to_string();
  member.join();
}

TEST(Coordinator, RanksThatTheLauncherDeclaresDeadAreDead) {
  const auto coordinator = start_coordinator(2);
  std::thread second([&] {
    const auto joined = TcpBootstrap::join(plan_for(*coordinator, 1, 2)).value();
    EXPECT_TRUE(joined->barrier("all have joined", kTimeout).is_ok());
    coordinator->declare_dead(Rank(0), "process 17 was killed by signal 9");
    const Status status = joined->barrier("never", kTimeout);
    EXPECT_EQ(status.code(), Code::kPeerDead);
    EXPECT_EQ(joined->peers().describe(Rank(0)), "dead: process 17 was killed by signal 9");
  });
  const auto first = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
  (void)first->barrier("all have joined", kTimeout);
  second.join();
}

TEST(Coordinator, ItsEndFailsOutstandingCalls) {
  auto coordinator = start_coordinator(1);
  const auto joined = TcpBootstrap::join(plan_for(*coordinator, 0, 1)).value();
  std::thread waiter([&] {
    const Status status = joined->lookup("never", kTimeout).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.to_string(), HasSubstr("the launcher is gone"));
  });
  coordinator.reset();
  waiter.join();
}

TEST(Coordinator, TheEndOfRankZerosCoordinatorIsTheDeathOfRankZero) {
  auto coordinator = start_coordinator(2);
  std::thread second([&] {
    JoinPlan plan = plan_for(*coordinator, 1, 2);
    plan.host = Rank(0);
    const auto joined = TcpBootstrap::join(std::move(plan)).value();
    EXPECT_EQ(joined->lookup("never", kTimeout).status().code(), Code::kUnavailable);
    EXPECT_EQ(joined->peers().state(Rank(0)), PeerState::kDead);
  });
  const auto first = TcpBootstrap::join(plan_for(*coordinator, 0, 2)).value();
  coordinator.reset();
  second.join();
}

TEST(Coordinator, AnyRankMayRunIt) {
  auto coordinator = start_coordinator(2);
  std::thread first([&] {
    JoinPlan plan = plan_for(*coordinator, 0, 2);
    plan.host = Rank(1);
    const auto joined = TcpBootstrap::join(std::move(plan)).value();
    EXPECT_THAT(joined->lookup("never", kTimeout).status().to_string(),
                HasSubstr("rank 1, which ran the coordinator, is gone"));
    EXPECT_EQ(joined->peers().state(Rank(1)), PeerState::kDead);
  });
  const auto second = TcpBootstrap::join(plan_for(*coordinator, 1, 2)).value();
  coordinator.reset();
  first.join();
}

TEST(Coordinator, RanksUnderOneKernelAreCountedOnDemand) {
  auto coordinator = start_coordinator(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      JoinPlan plan = plan_for(*coordinator, rank, 3);
      plan.counts_local = true;
      const auto joined = TcpBootstrap::join(std::move(plan)).value();
      EXPECT_EQ(joined->job().local_rank, rank);
      EXPECT_EQ(joined->job().local_size, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(InProcessJob, ThreadsMeetDieAndAgree) {
  InProcessJob job(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&job, rank] {
      const auto bootstrap = job.bootstrap(Rank(rank));
      ASSERT_TRUE(bootstrap->barrier("start", kTimeout).is_ok());
      if (rank == 3) {
        job.kill(Rank(3), "as the test wants");
        EXPECT_EQ(bootstrap->barrier("dead", kTimeout).code(), Code::kClosed);
        return;
      }
      EXPECT_EQ(bootstrap->barrier("with the dead", kTimeout).code(), Code::kPeerDead);
      const Membership membership = bootstrap->reform(kTimeout).value();
      EXPECT_EQ(membership.epoch, 1U);
      EXPECT_EQ(membership.members, (std::vector<Rank>{Rank(0), Rank(1), Rank(2)}));
      EXPECT_TRUE(bootstrap->barrier("survivors", kTimeout).is_ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(InProcessJob, ChoresRunWhileACallWaits) {
  InProcessJob job(2);
  const auto first = job.bootstrap(Rank(0));
  const auto second = job.bootstrap(Rank(1));
  int turns = 0;
  const int chore = first->add_chore([&] {
    if (++turns != 3) return;
    EXPECT_EQ(first->lookup("key", kTimeout).status().code(), Code::kDeadlineExceeded);
    EXPECT_EQ(first->publish("other", {}).code(), Code::kInternal);
    EXPECT_TRUE(second->publish("key", {}).is_ok());
  });
  EXPECT_TRUE(first->lookup("key", kTimeout).is_ok());
  EXPECT_GE(turns, 3);
  first->remove_chore(chore);
  turns = 0;
  EXPECT_EQ(first->lookup("absent", 10ms).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(turns, 0);
}

TEST(Coordinator, IsAnErrorWithoutAThread) {
  const testing::NoThreads no_threads;
  const auto coordinator = Coordinator::start(
      {.size = 1, .job_id = "test", .secret = kSecret, .listen = {"127.0.0.1", 0}});
  EXPECT_THAT(coordinator.status().to_string(), HasSubstr("starting the thread dunlin-coord"));
}

TEST(TcpBootstrap, IsAnErrorWithoutAThread) {
  const auto coordinator = start_coordinator(1);
  const testing::NoThreads no_threads;
  EXPECT_THAT(error_of(plan_for(*coordinator, 0, 1)),
              HasSubstr("starting the thread dunlin-monitor"));
}

TEST(InProcessJob, DeadlinesNameTheMissingRanks) {
  InProcessJob job(3);
  const auto first = job.bootstrap(Rank(0));
  EXPECT_EQ(job.bootstrap(Rank(0)), nullptr);
  EXPECT_THAT(first->barrier("b", 10ms).to_string(), HasSubstr("still missing: 1, 2"));
  EXPECT_EQ(first->lookup("key", 10ms).status().code(), Code::kDeadlineExceeded);
  job.bootstrap(Rank(1)).reset();
  EXPECT_EQ(first->peers().state(Rank(1)), PeerState::kLeft);
}

TEST(SingleProcess, IsAJobOfOne) {
  const Environment environment;
  const auto alone = Bootstrap::join(Config::parse(environment).value(), environment).value();
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->job().launcher, "single");
  EXPECT_TRUE(alone->barrier("alone", kTimeout).is_ok());
}

}  // namespace
}  // namespace dunlin::bootstrap
