#include "transports/verbs/device/fork.h"

#include <infiniband/verbs.h>

#include <cstdlib>
#include <cstring>

#include "runtime/log.h"

namespace dunlin::transport::verbs {

void prepare_for_fork() {
  if (ibv_is_fork_initialized() != IBV_FORK_DISABLED) return;  // done, or the kernel does it
  // Regions may consist of huge pages, which libibverbs asks about only if it is told to.
  (void)setenv("RDMAV_HUGEPAGES_SAFE", "1", 0);
  if (const int error = ibv_fork_init(); error != 0) {
    DUNLIN_WARN(
        "verbs: this kernel and libibverbs do not protect registered memory from fork() ({}): make "
        "child processes before the job starts",
        std::strerror(error));
  }
}

}  // namespace dunlin::transport::verbs
