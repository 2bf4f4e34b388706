// How processes join a running job, how members leave between two steps, and what the coordinator
// refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "runtime/bootstrap/step_boundary.h"
#include "tests/runtime/bootstrap/coordinator_job.h"
#include "tests/runtime/bootstrap/ledger_test.h"

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kLong = 60s;

std::vector<int> values(const std::vector<Rank>& ranks) {
  std::vector<int> result;
  for (const Rank rank : ranks) result.push_back(rank.value());
  return result;
}

TEST(StepBoundary, AStepThatHasBegunIsBeforeTheBoundary) {
  StepBoundary boundary;
  std::optional<std::uint64_t> promised;
  EXPECT_EQ(boundary.before(7, promised), StepBoundary::Outcome::kGoOn);
  EXPECT_FALSE(promised);
  EXPECT_EQ(boundary.ask(), 8U);
  EXPECT_EQ(boundary.ask(), 8U) << "the promise stays";
  EXPECT_EQ(boundary.before(8, promised), StepBoundary::Outcome::kWait);
  boundary.tell(10);
  EXPECT_EQ(boundary.before(8, promised), StepBoundary::Outcome::kGoOn);
  EXPECT_EQ(boundary.before(9, promised), StepBoundary::Outcome::kGoOn);
  EXPECT_EQ(boundary.before(10, promised), StepBoundary::Outcome::kChange);
  EXPECT_FALSE(promised);
  boundary.reset();
  EXPECT_EQ(boundary.before(10, promised), StepBoundary::Outcome::kGoOn);
}

TEST(StepBoundary, AProgramThatHasNotBegunPromisesItsFirstStep) {
  StepBoundary boundary;
  EXPECT_EQ(boundary.ask(), std::nullopt);
  EXPECT_FALSE(boundary.is_change_due());
  std::optional<std::uint64_t> promised;
  EXPECT_EQ(boundary.before(3, promised), StepBoundary::Outcome::kWait);
  EXPECT_EQ(promised, 3U);
  boundary.tell(3);
  EXPECT_EQ(boundary.before(3, promised), StepBoundary::Outcome::kChange);
}

TEST(StepBoundary, NothingChangesAnyMoreOnceAMemberIsAtItsEnd) {
  StepBoundary boundary;
  std::optional<std::uint64_t> promised;
  EXPECT_EQ(boundary.before(StepBoundary::kNever, promised), StepBoundary::Outcome::kGoOn);
  EXPECT_EQ(boundary.ask(), StepBoundary::kNever);
  boundary.tell(StepBoundary::kNever);
  EXPECT_FALSE(boundary.is_change_due());
  EXPECT_EQ(boundary.before(StepBoundary::kNever, promised), StepBoundary::Outcome::kGoOn);
}

TEST(StepBoundary, AMemberThatIsAskedBeforeItsEndChangesWithTheOthers) {
  StepBoundary boundary;
  std::optional<std::uint64_t> promised;
  EXPECT_EQ(boundary.before(7, promised), StepBoundary::Outcome::kGoOn);
  EXPECT_EQ(boundary.ask(), 8U);
  EXPECT_EQ(boundary.before(StepBoundary::kNever, promised), StepBoundary::Outcome::kWait);
  boundary.tell(8);
  EXPECT_TRUE(boundary.is_change_due());
  EXPECT_EQ(boundary.before(StepBoundary::kNever, promised), StepBoundary::Outcome::kChange);
}

// A ledger of two founders and room for two more.
class GrowingLedgerTest : public LedgerTest {
 protected:
  GrowingLedgerTest() {
    for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(admit(rank).is_ok());
    for (int rank = 0; rank < 2; ++rank) send(rank, MessageType::kJoin);
    sent_.clear();
  }
  Status admit(int rank) { return growing_.admit(Rank(rank), now_); }
  void send(int rank, MessageType type, std::uint64_t number = 1'000'000'000'000,
            Bytes value = {}) {
    const Message message{.type = type,
                          .request = ++requests_,
                          .number = number,
                          .text = type == MessageType::kBarrier ? "b" : "",
                          .value = std::move(value)};
    EXPECT_TRUE(growing_.receive(Rank(rank), message, now_).is_ok());
  }
  void step(int rank, std::uint64_t number, std::uint64_t epoch = 0) {
    send(rank, MessageType::kStep, number, ByteWriter().number(epoch).take());
  }
  // The boundaries that a rank was told.
  std::vector<std::uint64_t> boundaries(int rank) const {
    std::vector<std::uint64_t> result;
    for (const auto& [to, message] : sent_) {
      if (to == Rank(rank) && message.type == MessageType::kBoundary)
        result.push_back(message.number);
    }
    return result;
  }
  bool is_asked(int rank) const {
    return std::ranges::any_of(sent_, [rank](const auto& each) {
      return each.first == Rank(rank) && each.second.type == MessageType::kAskStep;
    });
  }

  JobLedger growing_{{4, 2}, Duration::zero(), [this](Rank to, const Message& message) {
                       sent_.emplace_back(to, message);
                     }};
};

TEST_F(GrowingLedgerTest, ANewcomerBecomesAMemberBetweenTwoSteps) {
  ASSERT_EQ(growing_.free_rank().value(), Rank(2));
  ASSERT_TRUE(admit(2).is_ok());
  EXPECT_THAT(notices(0), ElementsAre("2 alive"));
  EXPECT_THAT(notices(1), ElementsAre("2 alive"));
  send(2, MessageType::kJoin);
  ASSERT_EQ(replies(2).size(), 1U);
  EXPECT_THAT(values(replies(2)[0].ranks), ElementsAre(0, 1));
  EXPECT_FALSE(is_asked(0)) << "it is not ready yet";
  send(2, MessageType::kReform);
  EXPECT_TRUE(is_asked(0));
  EXPECT_TRUE(is_asked(1));
  EXPECT_FALSE(is_asked(2));
  step(0, 5);
  EXPECT_THAT(boundaries(0), ElementsAre());
  step(1, 3);
  EXPECT_THAT(boundaries(0), ElementsAre(5));
  EXPECT_THAT(boundaries(1), ElementsAre(5));
  send(0, MessageType::kReform);
  EXPECT_EQ(replies(2).size(), 1U);
  send(1, MessageType::kReform);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(replies(rank).back().number, 1U);
    EXPECT_THAT(values(replies(rank).back().ranks), ElementsAre(0, 1, 2));
  }
}

TEST_F(GrowingLedgerTest, NobodyWaitsForANewcomerThatIsNotReady) {
  ASSERT_TRUE(admit(2).is_ok());
  send(2, MessageType::kJoin);
  send(0, MessageType::kBarrier);
  send(1, MessageType::kBarrier);
  EXPECT_EQ(replies(0).back().code, Code::kOk);
  growing_.declare_dead(Rank(1), "killed");
  send(0, MessageType::kReform);
  EXPECT_THAT(values(replies(0).back().ranks), ElementsAre(0));
}

TEST_F(GrowingLedgerTest, ANewcomerIsRefusedAtBarriersUntilItIsAMember) {
  ASSERT_TRUE(admit(2).is_ok());
  send(2, MessageType::kJoin);
  send(2, MessageType::kBarrier);
  EXPECT_EQ(replies(2).back().code, Code::kInvalidArgument);
  EXPECT_THAT(replies(2).back().text, HasSubstr("reform"));
}

TEST_F(GrowingLedgerTest, ADeathTakesANewcomerInThatIsReady) {
  ASSERT_TRUE(admit(2).is_ok());
  send(2, MessageType::kJoin);
  send(2, MessageType::kReform);
  step(0, 5);
  growing_.declare_dead(Rank(1), "killed");
  EXPECT_THAT(boundaries(0), ElementsAre(5)) << "the dead one is not waited for";
  send(0, MessageType::kReform);
  EXPECT_THAT(values(replies(0).back().ranks), ElementsAre(0, 2));
  EXPECT_THAT(values(replies(2).back().ranks), ElementsAre(0, 2));
}

TEST_F(GrowingLedgerTest, TheDeathOfANewcomerKeepsNobodyFromGoingOn) {
  ASSERT_TRUE(admit(2).is_ok());
  send(2, MessageType::kJoin);
  send(2, MessageType::kReform);
  growing_.declare_dead(Rank(2), "killed");
  send(0, MessageType::kBarrier);
  send(1, MessageType::kBarrier);
  EXPECT_EQ(replies(0).back().code, Code::kOk) << "it was no member";
  step(0, 2);
  step(1, 2);
  send(0, MessageType::kReform);
  send(1, MessageType::kReform);
  EXPECT_THAT(values(replies(0).back().ranks), ElementsAre(0, 1));
}

TEST_F(GrowingLedgerTest, AnAnswerOfAnEarlierEpochDoesNotCount) {
  send(0, MessageType::kRetire);
  send(0, MessageType::kReform);
  send(1, MessageType::kReform);
  sent_.clear();
  step(0, 9, 0);
  step(1, 9, 0);
  EXPECT_THAT(boundaries(0), ElementsAre());
  step(0, 2, 1);
  step(1, 2, 1);
  EXPECT_THAT(boundaries(0), ElementsAre(2));
}

TEST_F(GrowingLedgerTest, AMemberThatRetiresIsAskedForAgainAfterADeath) {
  ASSERT_TRUE(admit(2).is_ok());
  send(2, MessageType::kJoin);
  send(2, MessageType::kReform);
  send(0, MessageType::kReform);
  send(1, MessageType::kReform);
  send(0, MessageType::kRetire);
  growing_.declare_dead(Rank(1), "killed");
  sent_.clear();
  send(0, MessageType::kReform);
  send(2, MessageType::kReform);
  EXPECT_TRUE(is_asked(0));
  step(0, 4, 2);
  step(2, 3, 2);
  EXPECT_THAT(boundaries(2), ElementsAre(4));
  sent_.clear();
  send(0, MessageType::kLeave);
  send(2, MessageType::kReform);
  EXPECT_THAT(notices(2), ElementsAre("0 left"));
  EXPECT_THAT(values(replies(2).back().ranks), ElementsAre(2));
}

TEST_F(GrowingLedgerTest, RanksAreNotGivenTwice) {
  ASSERT_TRUE(admit(2).is_ok());
  growing_.declare_dead(Rank(2), "killed");
  EXPECT_EQ(growing_.free_rank().value(), Rank(3));
  ASSERT_TRUE(admit(3).is_ok());
  EXPECT_THAT(growing_.free_rank().status().to_string(), HasSubstr("all 4 ranks"));
}

TEST_F(GrowingLedgerTest, ANewcomerLearnsWhatHasHappenedBefore) {
  ASSERT_TRUE(admit(2).is_ok());
  growing_.declare_dead(Rank(1), "killed");
  send(2, MessageType::kLeave);
  ASSERT_TRUE(admit(3).is_ok());
  sent_.clear();
  send(3, MessageType::kJoin);
  EXPECT_THAT(notices(3), ::testing::UnorderedElementsAre("1 dead", "2 left"));
}

TEST_F(GrowingLedgerTest, MembersAtTheirEndTakeNobodyIn) {
  ASSERT_TRUE(admit(2).is_ok());
  send(2, MessageType::kJoin);
  send(2, MessageType::kReform);
  step(0, StepBoundary::kNever);
  step(1, 5);
  EXPECT_THAT(boundaries(1), ElementsAre(StepBoundary::kNever));
  EXPECT_EQ(replies(2).back().code, Code::kUnavailable);
  EXPECT_THAT(replies(2).back().text, HasSubstr("at their end"));
  ASSERT_TRUE(admit(3).is_ok());
  send(3, MessageType::kJoin);
  send(3, MessageType::kReform);
  EXPECT_EQ(replies(3).back().code, Code::kUnavailable);
}

TEST_F(GrowingLedgerTest, StepsThatNobodyHasAskedForDoNotCount) {
  step(0, 1);
  send(1, MessageType::kRetire);
  step(1, 1);
  EXPECT_THAT(boundaries(0), ElementsAre()) << "rank 0 has gone on since";
  step(0, 7);
  EXPECT_THAT(boundaries(0), ElementsAre(7));
}

TEST_F(GrowingLedgerTest, AMalformedStepViolatesTheProtocol) {
  const Message step{.type = MessageType::kStep, .number = 1};
  EXPECT_EQ(growing_.receive(Rank(0), step, now_).code(), Code::kCorrupted);
}

TEST(StartingLedger, ANewcomerThatGivesUpKeepsNobodyFromStarting) {
  std::vector<std::pair<Rank, Message>> sent;
  JobLedger ledger({4, 2}, Duration::zero(),
                   [&](Rank to, const Message& message) { sent.emplace_back(to, message); });
  TimePoint now{};
  const auto join = [&](int rank, Duration timeout) {
    ASSERT_TRUE(ledger.admit(Rank(rank), now).is_ok());
    const Message message{.type = MessageType::kJoin,
                          .request = 1,
                          .number = static_cast<std::uint64_t>(timeout.count())};
    ASSERT_TRUE(ledger.receive(Rank(rank), message, now).is_ok());
  };
  join(0, kLong);
  join(2, 1s);
  now += 2s;
  ledger.tick(now);
  ASSERT_EQ(sent.size(), 2U) << "that rank 2 is there, and its answer";
  EXPECT_EQ(sent.back().first, Rank(2));
  EXPECT_EQ(sent.back().second.code, Code::kDeadlineExceeded);
  EXPECT_THAT(sent.back().second.text, HasSubstr("still missing: 1"));
  sent.clear();
  join(1, kLong);
  EXPECT_TRUE(
      std::ranges::all_of(sent, [](const auto& each) { return each.second.code == Code::kOk; }));
  EXPECT_EQ(std::ranges::count_if(
                sent, [](const auto& each) { return each.second.type == MessageType::kReply; }),
            2);
}

TEST_F(GrowingLedgerTest, AJobWithoutMembersTakesNobodyIn) {
  ASSERT_TRUE(admit(2).is_ok());
  send(2, MessageType::kJoin);
  send(2, MessageType::kReform);
  send(0, MessageType::kLeave);
  send(1, MessageType::kLeave);
  EXPECT_EQ(replies(2).back().code, Code::kUnavailable);
  EXPECT_EQ(admit(3).code(), Code::kUnavailable);
}

TEST_F(LedgerTest, AJobOfFoundersOnlyTakesNobodyIn) {
  start();
  EXPECT_THAT(ledger_.free_rank().status().to_string(), HasSubstr("--max-ranks"));
}

TEST(JoiningInProcess, AMemberStopsBeforeTheSameStepAsTheOthers) {
  InProcessJob job(3, 2);
  const auto first = job.bootstrap(Rank(0));
  const auto second = job.bootstrap(Rank(1));
  EXPECT_EQ(first->peers().state(Rank(2)), PeerState::kAbsent);
  EXPECT_THAT(first->peers().check(Rank(2)).to_string(), HasSubstr("has not joined"));
  ASSERT_FALSE(first->changes_before(1, kLong).value());
  ASSERT_FALSE(second->changes_before(1, kLong).value());
  ASSERT_FALSE(second->changes_before(2, kLong).value());
  const auto third = job.join().value();
  EXPECT_EQ(third->rank(), Rank(2));
  EXPECT_THAT(values(third->membership().members), ElementsAre(0, 1));
  EXPECT_EQ(first->peers().state(Rank(2)), PeerState::kAlive);
  EXPECT_FALSE(first->is_change_wanted());
  auto joining = std::async(std::launch::async, [&] { return third->reform(kLong); });
  while (!first->is_change_wanted()) std::this_thread::yield();  // both have answered
  // The second rank is in step 2.
  EXPECT_FALSE(first->changes_before(2, kLong).value());
  EXPECT_TRUE(first->changes_before(3, kLong).value());
  EXPECT_TRUE(second->changes_before(3, kLong).value());
  auto other = std::async(std::launch::async, [&] { return second->reform(kLong); });
  const Membership members = first->reform(kLong).value();
  EXPECT_EQ(members.epoch, 1U);
  EXPECT_THAT(values(members.members), ElementsAre(0, 1, 2));
  EXPECT_EQ(other.get().value().members, members.members);
  EXPECT_EQ(joining.get().value().members, members.members);
  EXPECT_FALSE(first->changes_before(3, kLong).value());
  EXPECT_THAT(job.join().status().to_string(), HasSubstr("all 3 ranks"));
}

TEST(JoiningInProcess, AWaitForTheBoundaryEndsAtItsTimeout) {
  InProcessJob job(3, 2);
  const auto first = job.bootstrap(Rank(0));
  const auto second = job.bootstrap(Rank(1));  // it never comes to a step
  ASSERT_FALSE(first->changes_before(1, kLong).value());
  ASSERT_TRUE(second->retire().is_ok());
  const auto outcome = first->changes_before(2, 20ms);
  EXPECT_EQ(outcome.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().to_string(), HasSubstr("step 2"));
}

// It may have gone to reform() because of the death, or be the dead one.
TEST(JoiningInProcess, AWaitForTheBoundaryEndsWithADeath) {
  InProcessJob job(4, 3);
  const auto first = job.bootstrap(Rank(0));
  const auto second = job.bootstrap(Rank(1));
  const auto third = job.bootstrap(Rank(2));
  ASSERT_FALSE(first->changes_before(1, kLong).value());
  ASSERT_TRUE(second->retire().is_ok());
  auto waiting = std::async(std::launch::async, [&] { return first->changes_before(2, kLong); });
  job.kill(Rank(2), "by the test");
  const auto outcome = waiting.get();
  EXPECT_EQ(outcome.status().code(), Code::kPeerDead);
  EXPECT_EQ(outcome.status().peer(), Rank(2));
}

std::unique_ptr<Coordinator> start_growing(int size, int founders) {
  return Coordinator::start({.size = size,
                             .founders = founders,
                             .job_id = "test",
                             .secret = kSecret,
                             .heartbeat = 50ms,
                             .listen = {"127.0.0.1", 0}})
      .value();
}

// Rank 0 of a job that so many ranks start.
JoinPlan founder_of(const Coordinator& coordinator, int size, int founders) {
  JoinPlan plan = plan_for(coordinator, 0, size);
  plan.job.founders = founders;
  return plan;
}

JoinPlan newcomer_to(const Coordinator& coordinator) {
  JoinPlan plan = plan_for(coordinator, 0, 1);
  plan.job.rank = Rank();
  plan.job.size = 0;
  return plan;
}

TEST(JoiningOverTcp, ANewcomerGetsARankAndTakesPart) {
  const auto coordinator = start_growing(4, 1);
  const auto first = TcpBootstrap::join(founder_of(*coordinator, 4, 1)).value();
  const auto second = TcpBootstrap::join(newcomer_to(*coordinator)).value();
  EXPECT_EQ(second->rank(), Rank(1));
  EXPECT_EQ(second->size(), 4);
  EXPECT_EQ(second->job().founders, 1);
  EXPECT_TRUE(second->peers().is_present(Rank(1))) << "to itself, too";
  EXPECT_EQ(second->key(), first->key());
  auto joining = std::async(std::launch::async, [&] { return second->reform(kLong); });
  std::uint64_t step = 1;
  while (!first->changes_before(step, kLong).value()) ++step;
  const Membership members = first->reform(kLong).value();
  EXPECT_THAT(values(members.members), ElementsAre(0, 1));
  EXPECT_EQ(joining.get().value().members, members.members);
  ASSERT_TRUE(second->publish("key", ByteWriter().number(std::uint64_t{1}).take()).is_ok());
  EXPECT_TRUE(first->lookup_from(Rank(1), "key", kLong).is_ok());
}

TEST(JoiningOverTcp, RefusalsSayWhy) {
  const auto coordinator = start_growing(2, 2);
  const auto refused = TcpBootstrap::join(newcomer_to(*coordinator));
  EXPECT_THAT(refused.status().to_string(), HasSubstr("--max-ranks"));
  const auto growing = start_growing(2, 1);
  const auto mistaken = TcpBootstrap::join(founder_of(*growing, 2, 2));
  EXPECT_THAT(mistaken.status().to_string(), HasSubstr("DUNLIN_MAX_RANKS"));
  const Status refusal = refusal_of([&] {
    JoinPlan stranger = newcomer_to(*growing);
    stranger.secret = "wrong secret of more than 16";
    return stranger;
  });
  EXPECT_EQ(refusal.code(), Code::kPermissionDenied);
}

// A newcomer whose process ends before it is a member is no loss for the members.
TEST(JoiningOverTcp, TheEndOfANewcomerIsNoDeathOfAMember) {
  const auto coordinator = start_growing(3, 1);
  const auto first = TcpBootstrap::join(founder_of(*coordinator, 3, 1)).value();
  {
    const auto second = TcpBootstrap::join(newcomer_to(*coordinator)).value();
    EXPECT_EQ(second->rank(), Rank(1));
  }
  EXPECT_TRUE(first->barrier("alone", kLong).is_ok());
  EXPECT_EQ(first->peers().state(Rank(1)), PeerState::kLeft);
}

}  // namespace
}  // namespace dunlin::bootstrap
