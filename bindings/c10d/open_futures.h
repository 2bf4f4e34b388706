// The futures of this process's calls in progress. A child of fork() inherits copies that nothing
// would ever complete: they get an error there. Threads: any.
#pragma once

#include <ATen/core/ivalue.h>

#include "bindings/c10d/torch.h"

namespace dunlin::torch_backend {

// Keeps the future until it is removed.
void add_open_future(Handle<c10::ivalue::Future> future);
void remove_open_future(c10::ivalue::Future* future);

// Sets an error in the open futures, soon. Call it in the child after fork(). Their callbacks run
// in threads of their own, as one may wait for a lock that a thread of the parent held.
void fail_inherited_futures();

}  // namespace dunlin::torch_backend
