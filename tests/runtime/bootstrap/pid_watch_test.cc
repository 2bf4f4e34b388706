#include "runtime/bootstrap/pid_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace dunlin::bootstrap {
namespace {

using namespace std::chrono_literals;

class Watched : public ::testing::Test {
 protected:
  static constexpr Rank kSelf{0};
  static constexpr Rank kPeer{1};
  static constexpr Duration kGrace = 300ms;

  void SetUp() override {
    child_ = fork();
    if (child_ == 0) {
      for (;;) pause();
    }
    peers_.set_local_pid(kPeer, child_);
    watch_.refresh();
  }
  void TearDown() override { end(); }
  void end() {
    if (child_ == 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  void poll_at(TimePoint now, int timeout_ms) {
    std::vector<pollfd> entries;
    watch_.append_to(entries);
    ASSERT_EQ(entries.size(), 1U);
    poll(entries.data(), entries.size(), timeout_ms);
    watch_.note(entries.data(), now);
  }

  const TimePoint now_ = SteadyClock().now();
  pid_t child_ = 0;
  PeerTable peers_{2};
  std::vector<Rank> told_;
  PidWatch watch_{peers_, kSelf, kGrace, [this](Rank dead) { told_.push_back(dead); }};
};

TEST_F(Watched, AProcessThatRunsIsPresent) {
  poll_at(now_, 0);
  watch_.settle(now_ + 1h);
  EXPECT_TRUE(peers_.is_present(kPeer));
  EXPECT_EQ(watch_.next(now_ + 1h), now_ + 1h);
}

TEST_F(Watched, APeerIsDeadAfterTheGracePeriod) {
  end();
  poll_at(now_, 60'000);
  EXPECT_EQ(watch_.next(now_ + 1h), now_ + kGrace);
  watch_.settle(now_ + kGrace - 1ns);
  EXPECT_TRUE(peers_.is_present(kPeer));
  watch_.settle(now_ + kGrace);
  EXPECT_EQ(peers_.state(kPeer), PeerState::kDead);
  EXPECT_EQ(told_, std::vector<Rank>{kPeer});
  EXPECT_EQ(watch_.next(now_ + 1h), now_ + 1h);
}

TEST_F(Watched, ANoticeWithinTheGracePeriodIsNoDeath) {
  end();
  poll_at(now_, 60'000);
  peers_.mark(kPeer, PeerState::kLeft, "");
  watch_.settle(now_ + kGrace);
  EXPECT_EQ(peers_.state(kPeer), PeerState::kLeft);
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace dunlin::bootstrap
