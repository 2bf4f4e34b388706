// A process accepts membarriers before it has threads, or not at all: with threads, the kernel
// makes it wait, on a busy host for minutes. This program replaces syscall() with a function that
// counts how often that is asked for.
#include "runtime/membarrier.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <functional>
#include <thread>

#include "runtime/bootstrap/bootstrap.h"
#include "transports/endpoint/endpoint.h"

namespace {
std::atomic<int> requests = 0;
}  // namespace

// Takes precedence over libc's function, for the library as well. It doesn't know how many
// arguments there are. So it passes on six, and reads what the caller has on its stack where there
// are fewer.
extern "C" __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  using Function = long (*)(long, ...);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "syscall"));
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(list, long);
  va_end(list);
  // The command is an int: the upper half of the argument is undefined.
  if (number == SYS_membarrier &&
      static_cast<int>(arguments[0]) == MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
    ++requests;
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

namespace dunlin {
namespace {

// A process of its own, as the first call decides for a process.
bool holds_in_a_process(const std::function<bool()>& condition) {
  const pid_t child = fork();
  if (child == 0) _exit(condition() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

class Membarrier : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer starts a thread in each process";
#endif
    if (!has_membarriers()) GTEST_SKIP() << "this kernel has no membarrier(2)";
    struct stat threads {};
    if (stat("/proc/self/task", &threads) != 0 || threads.st_nlink != 3)
      GTEST_SKIP() << "this process has threads, as the thread sanitizer's, or there is no /proc";
  }
};

TEST_F(Membarrier, AProcessWithoutThreadsAcceptsItOnce) {
  EXPECT_TRUE(holds_in_a_process(
      [] { return accept_membarriers() && accept_membarriers() && requests == 1; }));
}

TEST_F(Membarrier, AProcessWithThreadsDoesNotAskForIt) {
  EXPECT_TRUE(holds_in_a_process([] {
    std::atomic<bool> is_over = false;
    std::thread other([&] { is_over.wait(false); });
    const bool accepts = accept_membarriers();
    is_over = true;
    is_over.notify_one();
    other.join();
    return !accepts && requests == 0;
  }));
}

TEST_F(Membarrier, ARankAcceptsItBeforeItHasThreads) {
  EXPECT_TRUE(holds_in_a_process([] {
    const Environment none;
    const auto config = Config::parse(none);
    const auto bootstrap = Bootstrap::join(*config, none);
    return bootstrap.is_ok() && requests == 1;
  }));
}

TEST_F(Membarrier, AnEndpointAcceptsItBeforeItHasThreads) {
  EXPECT_TRUE(holds_in_a_process([] {
    const auto config = Config::parse(Environment());
    const SteadyClock clock;
    const auto endpoint = transport::Endpoint::create(*config, clock, {.is_host_only = true});
    return endpoint.is_ok() && requests == 1 && accept_membarriers();
  }));
}

}  // namespace
}  // namespace dunlin
