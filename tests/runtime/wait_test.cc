#include "runtime/wait.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

namespace dunlin {
namespace {

// A Progressor that is ready after a number of polls, or when its descriptor is written.
class Source final : public Progressor {
 public:
  Source() { fds_.push_back(eventfd(0, EFD_NONBLOCK)); }
  ~Source() override { close(fds_[0]); }
  std::size_t progress() override { return ++polls_, 0; }
  bool arm() override { return ++arms_, can_sleep_; }
  void disarm() override { ++disarms_; }
  const std::vector<int>& wait_fds() const override { return fds_; }

  std::vector<int> fds_;
  long polls_ = 0;
  std::atomic<long> arms_ = 0;  // read by another thread
  long disarms_ = 0;
  bool can_sleep_ = true;
};

constexpr auto kSoon = std::chrono::milliseconds(20);

TEST(Waiter, ReturnsWhatReadyReturns) {
  Source source;
  const SteadyClock clock;
  Waiter waiter(source, clock, {.spins = 10, .yields = 10});
  EXPECT_TRUE(waiter.until([] { return Status::ok(); }, clock.now() + kSoon).is_ok());
  EXPECT_EQ(source.polls_, 1);
  EXPECT_EQ(waiter.until([] { return Status(Code::kClosed, "gone"); }, clock.now() + kSoon).code(),
            Code::kClosed);
}

TEST(Waiter, SpinsThenYieldsThenSleeps) {
  Source source;
  const SteadyClock clock;
  Waiter waiter(source, clock, {.spins = 7, .yields = 5});
  long polls_at_first_sleep = 0;
  const auto ready = [&] {
    if (source.arms_ > 0) return Status::ok();
    polls_at_first_sleep = source.polls_;
    return Status::busy();
  };
  EXPECT_TRUE(waiter.until(ready, clock.now() + std::chrono::seconds(10)).is_ok());
  EXPECT_EQ(polls_at_first_sleep, 7 + 5 + 1);
  EXPECT_EQ(source.arms_.load(), source.disarms_);
}

// Each reading is later than the one before by `step`: so long does a poll or a yield take.
class SteppingClock final : public Clock {
 public:
  explicit SteppingClock(Duration step) : step_(step) {}
  TimePoint now() const override { return now_ += step_; }
  mutable TimePoint now_{std::chrono::seconds(1)};
  Duration step_;
};

// Returns the number of polls until `polls` have passed or the waiter sleeps.
long polls_before_sleep(Waiter& waiter, Source& source, const Clock& clock, long polls) {
  const long before = source.polls_;
  const long slept = source.arms_;
  const auto ready = [&] {
    return source.arms_ > slept || source.polls_ - before >= polls ? Status::ok() : Status::busy();
  };
  EXPECT_TRUE(waiter.until(ready, clock.now() + std::chrono::hours(10)).is_ok());
  return source.polls_ - before;
}

TEST(Waiter, SpinsNoLongerThanItsSpinTime) {
  Source source;
  const SteppingClock clock(std::chrono::microseconds(5));
  Waiter waiter(source, clock,
                {.spins = 1'000'000, .yields = 3, .spin_time = std::chrono::microseconds(20)});
  // The clock is read every 64 polls: first, and after 5, 10, 15 and 20 us.
  EXPECT_EQ(polls_before_sleep(waiter, source, clock, 1'000'000), 5 * 64 + 3 + 1);
}

TEST(Waiter, YieldsForItsYieldTimeWithACoreOfItsOwn) {
  Source source;
  const SteppingClock clock(std::chrono::microseconds(5));
  Waiter waiter(source, clock,
                {.spins = 64, .yields = 3, .yield_time = std::chrono::microseconds(500)});
  // A yield reads the clock twice, so that 500 us are 50 polls.
  const long polls = polls_before_sleep(waiter, source, clock, 1'000'000);
  EXPECT_GE(polls, 64 + 49);
  EXPECT_LE(polls, 64 + 52);
  EXPECT_FALSE(waiter.shares_core());
}

TEST(Waiter, DoesNotSpinForAWhileAfterAnotherThreadRanDuringAYield) {
  Source source;
  SteppingClock clock(std::chrono::microseconds(5));
  Waiter waiter(source, clock,
                {.spins = 64, .yields = 3, .yield_time = std::chrono::milliseconds(500)});
  clock.step_ = std::chrono::microseconds(50);
  EXPECT_EQ(polls_before_sleep(waiter, source, clock, 1'000'000), 64 + 3 + 1);
  EXPECT_TRUE(waiter.shares_core());
  clock.step_ = std::chrono::microseconds(1);
  EXPECT_EQ(polls_before_sleep(waiter, source, clock, 1'000'000), 3 + 1);
  clock.now_ += std::chrono::milliseconds(100);
  EXPECT_FALSE(waiter.shares_core());
  EXPECT_EQ(polls_before_sleep(waiter, source, clock, 64), 64);
}

// A waiter that never spins has no spinning to give up.
TEST(Waiter, LooksForOtherThreadsOnlyIfItSpins) {
  Source source;
  const SteppingClock clock(std::chrono::milliseconds(1));
  Waiter waiter(source, clock, {.spins = 0, .yields = 3});
  EXPECT_EQ(polls_before_sleep(waiter, source, clock, 1'000'000), 3 + 1);
  EXPECT_FALSE(waiter.shares_core());
}

TEST(Waiter, ExpiresInEveryPhase) {
  for (const WaitPolicy policy :
       {WaitPolicy{-1, -1}, WaitPolicy{0, -1}, WaitPolicy{0, 0}, WaitPolicy{5, 5}}) {
    Source source;
    const SteadyClock clock;
    Waiter waiter(source, clock, policy);
    const TimePoint began = clock.now();
    const Status status = waiter.until([] { return Status::busy(); }, began + kSoon);
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
    EXPECT_GE(clock.now() - began, kSoon);
    EXPECT_EQ(source.arms_.load(), source.disarms_);
  }
}

TEST(Waiter, ADescriptorEndsTheSleep) {
  Source source;
  const SteadyClock clock;
  Waiter waiter(source, clock, {.spins = 0, .yields = 0});
  std::atomic<bool> is_rung{false};
  std::thread ringer([&] {
    while (source.arms_ == 0) std::this_thread::yield();
    is_rung = true;
    eventfd_write(source.fds_[0], 1);
  });
  const auto ready = [&] { return is_rung ? Status::ok() : Status::busy(); };
  EXPECT_TRUE(waiter.until(ready, clock.now() + std::chrono::seconds(10)).is_ok());
  ringer.join();
}

// ready() may report an event only once.
TEST(Waiter, ReturnsWhatReadyReturnsBeforeTheSleep) {
  Source source;
  const SteadyClock clock;
  Waiter waiter(source, clock, {.spins = 0, .yields = 0});
  auto ready = [&, said = false]() mutable {
    if (source.arms_ == 0 || std::exchange(said, true)) return Status::busy();
    return Status(Code::kClosed, "gone");
  };
  EXPECT_EQ(waiter.until(ready, clock.now() + kSoon).code(), Code::kClosed);
  EXPECT_EQ(source.arms_.load(), source.disarms_);
}

TEST(Waiter, PollsOnWhenSleepIsNotPossible) {
  Source source;
  source.can_sleep_ = false;
  const SteadyClock clock;
  Waiter waiter(source, clock, {.spins = 0, .yields = 0});
  const auto ready = [&] { return source.polls_ > 100 ? Status::ok() : Status::busy(); };
  EXPECT_TRUE(waiter.until(ready, clock.now() + std::chrono::seconds(10)).is_ok());
}

TEST(WaitPolicy, SpinsOnlyWithACorePerRank) {
  Config config = Config::parse(Environment()).value();
  EXPECT_GT(WaitPolicy::from(config, 2, 2).spins, 0);
  EXPECT_EQ(WaitPolicy::from(config, 3, 2).spins, 0);
  config.wait = WaitMode::kYield;
  EXPECT_EQ(WaitPolicy::from(config, 2, 2).spins, 0);
  config.wait = WaitMode::kSpin;
  EXPECT_EQ(WaitPolicy::from(config, 3, 2).spins, -1);
  config.wait = WaitMode::kEvent;
  EXPECT_EQ(WaitPolicy::from(config, 1, 2).yields, 0);
}

}  // namespace
}  // namespace dunlin
