// StoreServer: the server of PyTorch's store, as a member sees it that is a client of it.
//
// init_process_group() over env:// or tcp:// starts a TCPStore: the first rank's process listens on
// the given port, and the other ranks connect to it. destroy_process_group() ends both. A rank that
// makes a group again at once would connect to the first rank's old server if that has not ended
// yet, and lose the connection.
#pragma once

#include <functional>

#include "bindings/c10d/torch.h"
#include "runtime/clock.h"

namespace dunlin::torch_backend {

// Calls `wait` without the GIL if this thread holds it; not at all while Python ends. module.cc
// implements it.
void wait_without_python(const std::function<void()>& wait);

class StoreServer {
 public:
  // `store`: of a default group, null otherwise.
  StoreServer(Handle<c10d::Store> store, int rank);

  // Waits until the server has ended, for `timeout` at most. Returns at once if this process has no
  // connection to a server that ends with the group: in the first rank, with another kind of store,
  // and under torchrun, whose agent has the server. Only the first call does anything.
  void await_end(Duration timeout);

 private:
  Handle<c10d::Store> store_;  // null: there is nothing to wait for
};

}  // namespace dunlin::torch_backend
