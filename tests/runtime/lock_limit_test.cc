#include "runtime/memory/lock_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace dunlin {
namespace {

constexpr std::size_t kLimit = 64 << 10;

// Sets the soft limit and drops CAP_IPC_LOCK. The process cannot undo this, so it is for death
// tests.
void be_limited() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  limit.rlim_cur = kLimit;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  const bool is_done = setrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                       syscall(SYS_capget, &header, data) == 0 &&
                       ((data[0].effective &= ~(1U << CAP_IPC_LOCK)), true) &&
                       syscall(SYS_capset, &header, data) == 0;
  if (!is_done) std::perror("can't be limited");
}

void print_limit() {
  const auto limit = locked_memory_limit();
  std::fprintf(stderr, "limit: %s\n", limit ? std::to_string(*limit).c_str() : "none");
  std::exit(0);
}

TEST(LockLimit, IsThatOfTheKernelWithoutTheCapability) {
  EXPECT_EXIT((be_limited(), print_limit()), testing::ExitedWithCode(0), "limit: 65536\n");
}

TEST(LockLimit, CountsForNobodyWithTheCapability) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = kLimit;
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  // Ask the kernel whether this process may lock more.
  constexpr std::size_t kMore = 2 * kLimit;
  void* const pages =
      mmap(nullptr, kMore, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const bool may_exceed = mlock(pages, kMore) == 0;
  EXPECT_EQ(locked_memory_limit().has_value(), !may_exceed);
  munmap(pages, kMore);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(LockLimit, RemedyCoversShellsLoginsServicesAndContainers) {
  const std::string remedy(locked_memory_remedy());
  for (const char* word : {"ulimit -l unlimited", "/etc/security/limits.d", "LimitMEMLOCK=infinity",
                           "--ulimit memlock=-1"}) {
    EXPECT_THAT(remedy, testing::HasSubstr(word));
  }
}

}  // namespace
}  // namespace dunlin
