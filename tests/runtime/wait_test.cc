#include "runtime/wait.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

namespace dunlin {
namespace {

// Becomes ready after a number of polls, or when its descriptor is written.
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
  std::atomic<long> arms_ = 0;  // a test looks from another thread
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

// What ready() learns may be news only once.
TEST(Waiter, HearsWhatReadySaysBeforeTheSleep) {
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

TEST(Waiter, PollsOnWhereSleepIsNotPossible) {
  Source source;
  source.can_sleep_ = false;
  const SteadyClock clock;
  Waiter waiter(source, clock, {.spins = 0, .yields = 0});
  const auto ready = [&] { return source.polls_ > 100 ? Status::ok() : Status::busy(); };
  EXPECT_TRUE(waiter.until(ready, clock.now() + std::chrono::seconds(10)).is_ok());
}

TEST(WaitPolicy, SpinsOnlyWhereThereIsACorePerRank) {
  Config config = Config::parse(Environment()).value();
  EXPECT_GT(WaitPolicy::from(config, 2, 2).spins, 0);
  EXPECT_EQ(WaitPolicy::from(config, 3, 2).spins, 0);
  config.wait = WaitMode::kSpin;
  EXPECT_EQ(WaitPolicy::from(config, 3, 2).spins, -1);
  config.wait = WaitMode::kEvent;
  EXPECT_EQ(WaitPolicy::from(config, 1, 2).yields, 0);
}

}  // namespace
}  // namespace dunlin
