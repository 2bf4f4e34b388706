#include "transports/verbs/device/fork.h"

#include <infiniband/verbs.h>

#include <cstring>

#include "runtime/log.h"

namespace dunlin::transport::verbs {

void prepare_for_fork() {
  if (ibv_is_fork_initialized() != IBV_FORK_DISABLED) return;  // done, or the kernel does it
  if (const int error = ibv_fork_init(); error != 0) {
    DUNLIN_WARN(
        "verbs: this kernel and libibverbs do not protect registered memory from fork() ({}): make "
        "child processes before the job starts",
        std::strerror(error));
    return;
  }
  // libibverbs asks for the size of pages only if it is told to.
  DUNLIN_INFO(
      "verbs: this kernel shares registered pages with children, so libibverbs keeps children from "
      "them: set RDMAV_HUGEPAGES_SAFE=1 or DUNLIN_HUGE_PAGES=off if memory cannot be registered");
}

}  // namespace dunlin::transport::verbs
