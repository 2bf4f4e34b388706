// What an endpoint says when a connection is not completed in time, and when it gets no thread; and
// how long the end of a connection waits for the peer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>

#include "runtime/bootstrap/net.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "tests/support/no_threads.h"
#include "tests/support/ranks.h"
#include "transports/endpoint/constants.h"
#include "transports/endpoint/endpoint.h"

namespace dunlin::testing {
namespace {

using ::testing::HasSubstr;
using transport::Endpoint;

TEST(EndpointDeadline, SaysWhatTheConnectionWaitsFor) {
  const Config config =
      Config::parse(Environment({{"DUNLIN_TRANSPORTS", std::string("shm")}})).value();
  ManualClock clock;
  const auto listener = Endpoint::create(config, clock, {.is_host_only = true}).value();
  const auto dialer = Endpoint::create(config, clock, {.is_host_only = true}).value();
  const auto connection = dialer->connect(listener->blob(), {}).value();
  // The services shake hands. Then the listener makes no progress, and so it has no address yet.
  const int event = dialer->wait_fds().front();
  ASSERT_TRUE(bootstrap::wait_for(
      event, POLLIN, SteadyClock().now() + std::chrono::seconds(60) * timeout_factor()));
  dialer->progress();
  ASSERT_TRUE(connection->status().is_busy()) << connection->status().to_string();
  clock.advance(config.bootstrap_timeout);
  dialer->progress();
  EXPECT_EQ(connection->status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(connection->status().to_string(),
              AllOf(HasSubstr("within 30 s"), HasSubstr("waits for the peer's address"),
                    HasSubstr("no rank has published")));
}

TEST(EndpointThreads, AnEndpointWithoutThemIsAnError) {
  const Config config =
      Config::parse(Environment({{"DUNLIN_TRANSPORTS", std::string("shm")}})).value();
  const SteadyClock clock;
  const auto listener = Endpoint::create(config, clock, {.is_host_only = true}).value();
  const NoThreads no_threads;
  EXPECT_THAT(Endpoint::create(config, clock, {.is_host_only = true}).status().to_string(),
              HasSubstr("starting the thread dunlin-endpoint"));
  EXPECT_THAT(listener->connect(listener->blob(), {}).status().to_string(),
              HasSubstr("starting the thread dunlin-dial"));
}

// Two endpoints of this thread that are connected. Time stands still unless a test advances it, so
// that whatever waits for time to pass does not end.
class EndpointEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.transports = {"shm"};
    config_.bootstrap_timeout = std::chrono::hours(24);
    listener_ = Endpoint::create(config_, clock_, {.is_host_only = true}).value();
    dialer_ = Endpoint::create(config_, clock_, {.is_host_only = true}).value();
    connection_ = dialer_->connect(listener_->blob(), {}).value();
    const TimePoint limit = SteadyClock().now() + std::chrono::seconds(60) * timeout_factor();
    while (connection_->status().is_busy() || peers_ == nullptr || peers_->status().is_busy()) {
      ASSERT_LT(SteadyClock().now(), limit);
      clock_.advance(transport::endpoint::kRetry);
      dialer_->progress();
      listener_->progress();
      if (peers_ == nullptr) peers_ = listener_->accept();
    }
    ASSERT_TRUE(connection_->status().is_ok()) << connection_->status().to_string();
  }
  void TearDown() override {
    // The peers' end has nothing to wait for.
    connection_.reset();
    peers_.reset();
  }

  Config config_ = Config::parse(Environment()).value();
  ManualClock clock_;
  std::unique_ptr<Endpoint> listener_;
  std::unique_ptr<Endpoint> dialer_;
  std::unique_ptr<transport::Connection> connection_;
  std::unique_ptr<transport::Connection> peers_;
};

TEST_F(EndpointEnd, WaitsASecondForAPeerThatMakesNoProgress) {
  // More than the slots at the peer hold.
  for (std::uint32_t i = 0; i < 2 * transport::endpoint::kDepth; ++i)
    ASSERT_TRUE(connection_->send(as_bytes("hello")).is_ok());
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(connection_->finish());
    dialer_->progress();
  }
  clock_.advance(transport::endpoint::kFarewell);
  EXPECT_TRUE(connection_->finish());
}

TEST_F(EndpointEnd, IsFinishedOnceThePeerHasTheMessages) {
  ASSERT_TRUE(connection_->send(as_bytes("hello")).is_ok());
  const TimePoint limit = SteadyClock().now() + std::chrono::seconds(60) * timeout_factor();
  while (!connection_->finish()) {
    ASSERT_LT(SteadyClock().now(), limit);
    dialer_->progress();
    listener_->progress();
  }
  connection_.reset();
  while (peers_->status().is_ok()) {
    ASSERT_LT(SteadyClock().now(), limit);
    listener_->progress();
  }
  EXPECT_EQ(peers_->status().code(), Code::kClosed);
  EXPECT_EQ(peers_->receive(), Bytes(as_bytes("hello").begin(), as_bytes("hello").end()));
}

TEST_F(EndpointEnd, ClosingCompletesWhatIsInProgress) {
  transport::Completion flushed;
  ASSERT_TRUE(connection_->send(as_bytes("hello")).is_ok());
  connection_->close();
  EXPECT_EQ(connection_->status().code(), Code::kClosed);
  EXPECT_EQ(connection_->send(as_bytes("more")).code(), Code::kClosed);
  EXPECT_TRUE(connection_->finish());
  const Status posted = connection_->lane().flush(transport::Visibility::kRemote, &flushed);
  EXPECT_EQ(posted.code(), Code::kClosed) << posted.to_string();
}

}  // namespace
}  // namespace dunlin::testing
