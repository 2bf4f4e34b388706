#include "runtime/uninherited_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <string>
#include <string_view>
#include <utility>

namespace dunlin {
namespace {

std::string target_of(int fd) {
  char path[PATH_MAX];
  const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

// Whether the descriptor refers to this file in a child.
bool is_in_a_child(int fd, std::string_view file) {
  const pid_t child = fork();
  if (child == 0) _exit(target_of(fd) == file ? 0 : 1);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

TEST(UninheritedFd, IsNothingInAChild) {
  UninheritedFd first(Fd(open("/proc/version", O_RDONLY | O_CLOEXEC)));
  ASSERT_TRUE(first.is_open());
  EXPECT_TRUE(is_in_a_child(first.get(), "/dev/null"));
  EXPECT_EQ(target_of(first.get()), "/proc/version");
  UninheritedFd second = std::move(first);
  EXPECT_FALSE(first.is_open());
  EXPECT_TRUE(is_in_a_child(second.get(), "/dev/null"));
}

TEST(UninheritedFd, ANumberThatWasGivenBackIsInherited) {
  UninheritedFd first(Fd(open("/proc/version", O_RDONLY | O_CLOEXEC)));
  const int number = first.get();
  first.reset();
  const Fd other(open("/proc/uptime", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(other.get(), number);
  EXPECT_TRUE(is_in_a_child(number, "/proc/uptime"));
}

}  // namespace
}  // namespace dunlin
