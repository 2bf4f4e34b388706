// Precompiled for the backend of torch.distributed: PyTorch's headers take longer than all of ours.
#include <ATen/ATen.h>

#include "bindings/c10d/torch.h"
#include "runtime/pch/library.h"
