// The base class of a backend, which differs between PyTorch's versions: up to 1.13 a backend is a
// ProcessGroup, from 2.0 on a ProcessGroup has Backends.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

// Whether calls of several functions can be coalesced, as from 2.1 on. In older versions the
// functions of these names mean something else.
#define DUNLIN_TORCH_COALESCES \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1))

namespace dunlin::torch_backend {

#if TORCH_VERSION_MAJOR >= 2
using TorchBackend = c10d::Backend;
#else
using TorchBackend = c10d::ProcessGroup;
#endif

template <typename T>
using Handle = c10::intrusive_ptr<T>;

}  // namespace dunlin::torch_backend
