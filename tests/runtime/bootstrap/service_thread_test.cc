#include "runtime/bootstrap/service_thread.h"

#include <gtest/gtest.h>

#include "tests/support/no_threads.h"

namespace dunlin::bootstrap {
namespace {

bool is_blocked(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

TEST(ServiceThread, BlocksSignalsButItsStarterDoesNot) {
  bool is_deaf = false;
  auto thread = start_service_thread("dunlin-test", [&] { is_deaf = is_blocked(SIGINT); });
  ASSERT_TRUE(thread) << thread.status().to_string();
  thread->join();
  EXPECT_TRUE(is_deaf);
  EXPECT_FALSE(is_blocked(SIGINT));
}

TEST(ServiceThread, ItsStarterReceivesSignalsWhenItCannotStart) {
  const testing::NoThreads no_threads;
  const auto thread = start_service_thread("dunlin-test", [] {});
  ASSERT_FALSE(thread);
  EXPECT_EQ(thread.status().message(),
            "starting the thread dunlin-test: Resource temporarily unavailable");
  EXPECT_FALSE(is_blocked(SIGINT));
}

}  // namespace
}  // namespace dunlin::bootstrap
