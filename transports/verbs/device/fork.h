// Memory that is registered with a device, and fork().
#pragma once

namespace dunlin::transport::verbs {

// Makes fork() safe for this process's registered memory. The pages of registered memory are
// pinned. When a process that has forked writes to one, kernels before Linux 5.12 give the parent a
// new page, and the device goes on with the old one. There, libibverbs keeps registered pages out
// of children (ibv_fork_init(3)), which costs a system call per registration. Call it before memory
// is registered. Warns if it doesn't work.
void prepare_for_fork();

}  // namespace dunlin::transport::verbs
