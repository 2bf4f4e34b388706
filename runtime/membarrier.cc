#include "runtime/membarrier.h"

#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dunlin {
namespace {

long membarrier(int command) {
  return syscall(__NR_membarrier, command, 0, 0);
}

// The folder of the threads has a link for each of them, besides its own two.
bool has_one_thread() {
  struct stat threads {};
  return stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3;
}

}  // namespace

bool accept_membarriers() {
  static const bool accepted =
      has_one_thread() && membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
  return accepted;
}

bool has_membarriers() {
  static const bool has_them = [] {
    const long commands = membarrier(MEMBARRIER_CMD_QUERY);
    return commands >= 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
  }();
  return has_them;
}

bool order_accepted_stores() {
  return membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
}

}  // namespace dunlin
