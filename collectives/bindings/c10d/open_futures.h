// The futures of this process's calls that have not ended. A child of fork() inherits copies, which
// nothing would ever end: there, they end with an error. Any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include "collectives/bindings/c10d/torch.h"

namespace dunlin::torch_backend {

// Known from here on, and kept, until it was removed.
void add_open_future(Handle<c10::ivalue::Future> future);
void remove_open_future(c10::ivalue::Future* future);

// After fork(), in the child: those that are open end with an error, soon. Callbacks run as for all
// errors, in threads of their own: one may wait for a lock that a thread of the parent's had.
void fail_inherited_futures();

}  // namespace dunlin::torch_backend
