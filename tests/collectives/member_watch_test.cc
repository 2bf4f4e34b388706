#include "collectives/waiting/member_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/clock.h"
#include "transports/fabric.h"
#include "transports/shm/transport.h"

namespace dunlin::collective {
namespace {

using std::chrono::milliseconds;

// A fabric of rank 0 in a job of 2, whose other rank takes no part.
class MemberWatchTest : public ::testing::Test {
 protected:
  Status wait(Duration timeout) {
    return watch_.wait([this] { return ++tests_, Status::busy(); },
                       [] {
                         return std::vector<transport::Awaited>{{Rank(1), "its part"}};
                       },
                       timeout, [this] { return std::optional(clock_.now() + milliseconds(5)); });
  }

  SteadyClock clock_;
  using Values = std::map<std::string, std::string, std::less<>>;
  Config config_ = Config::parse(Environment(Values{{"DUNLIN_TRANSPORTS", "shm"}})).value();
  InProcessJob job_{2};
  std::unique_ptr<Bootstrap> bootstrap_ = job_.bootstrap(Rank(0));
  std::unique_ptr<transport::Fabric> fabric_ =
      transport::Fabric::create(*bootstrap_, config_, clock_, nullptr,
                                {{"shm", transport::shm::ShmTransport::create}})
          .value();
  std::vector<Rank> members_{Rank(0), Rank(1)};
  MemberWatch watch_{*fabric_, members_};
  long tests_ = 0;
};

// A stopped member may continue. Rounds that end because something is due are not the end.
TEST_F(MemberWatchTest, WaitsForAStoppedMemberUntilTheTimeout) {
  bootstrap_->peers().mark(Rank(1), PeerState::kStalled, "stopped");
  const TimePoint began = clock_.now();
  const Status status = wait(milliseconds(60));
  EXPECT_GE(clock_.now() - began, milliseconds(60));
  EXPECT_EQ(status.code(), Code::kPeerStalled) << status.to_string();
  EXPECT_EQ(status.peer(), Rank(1));
}

TEST_F(MemberWatchTest, EndsAtOnceWithTheDeathOfAMember) {
  bootstrap_->peers().mark(Rank(1), PeerState::kDead, "killed");
  const Status status = wait(std::chrono::hours(1));
  EXPECT_EQ(status.code(), Code::kPeerDead) << status.to_string();
  EXPECT_EQ(status.peer(), Rank(1));
}

TEST_F(MemberWatchTest, GoesOnTestingUntilTheTimeout) {
  const Status status = wait(milliseconds(60));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
  EXPECT_GT(tests_, 1);
}

}  // namespace
}  // namespace dunlin::collective
