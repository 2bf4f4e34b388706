// What an endpoint says when a connection is not completed in time, and when it gets no thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <string>

#include "runtime/bootstrap/net.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "tests/support/no_threads.h"
#include "tests/support/ranks.h"
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

}  // namespace
}  // namespace dunlin::testing
