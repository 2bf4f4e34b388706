#include "runtime/bootstrap/service_thread.h"

#include <gtest/gtest.h>

#include <system_error>

namespace dunlin::bootstrap {
namespace {

bool is_blocked(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

// A function that cannot be moved into a thread: creating the thread fails, as without resources.
struct Refused {
  Refused() = default;
  Refused(const Refused&) = default;
  Refused(Refused&&) { throw std::system_error(EAGAIN, std::generic_category()); }
  void operator()() {}
};

TEST(ServiceThread, BlocksSignalsButItsStarterDoesNot) {
  bool is_deaf = false;
  start_service_thread("dunlin-test", [&] { is_deaf = is_blocked(SIGINT); }).join();
  EXPECT_TRUE(is_deaf);
  EXPECT_FALSE(is_blocked(SIGINT));
}

TEST(ServiceThread, ItsStarterReceivesSignalsWhenItCannotStart) {
  const Refused refused;
  EXPECT_THROW((void)start_service_thread("dunlin-test", refused), std::system_error);
  EXPECT_FALSE(is_blocked(SIGINT));
}

}  // namespace
}  // namespace dunlin::bootstrap
