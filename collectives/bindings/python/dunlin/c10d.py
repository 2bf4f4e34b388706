"""Dunlin as a backend of torch.distributed.

    import torch.distributed, dunlin.c10d

    torch.distributed.init_process_group("dunlin")

Importing this module registers the backend "dunlin"; tensors on a GPU go through host memory. Any launcher and
init_method will do: torchrun, dunlin-run, or an explicit rank, world_size and init_method. dunlin.init(), before or
after, shares the job.

Groups of all sizes and subsets, DistributedDataParallel and FullyShardedDataParallel's calls work as with gloo. A rank
that dies, or stays away for longer than the group's timeout, is a RuntimeError that names it.
"""

import atexit as _atexit
import os as _os
import sys as _sys

from dunlin import _c10d_build

__all__ = ["BACKEND", "gossip_hook", "GossipState", "shutdown"]

BACKEND = "dunlin"
_EXIT_PATIENCE = 5.0  # seconds for the others to come to their ends as well


def _release(version):
    """(2, 1) of "2.1.0+cpu"."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


try:
    import torch as _torch
    import torch.distributed as _distributed
except ImportError as error:
    raise ImportError(f"dunlin.c10d needs PyTorch {_c10d_build.TORCH_VERSION}, which it was built for: {error}") from error
if _release(_torch.__version__) != _release(_c10d_build.TORCH_VERSION):
    raise ImportError(f"dunlin.c10d was built for PyTorch {_c10d_build.TORCH_VERSION}, and this is {_torch.__version__}; "
                      "build Dunlin with this interpreter and its PyTorch")

from dunlin import _c10d  # noqa: E402


def _create(store, rank, size, timeout):
    return _c10d.create(store, rank, size, timeout)


def _register():
    more = {} if _release(_torch.__version__) < (2, 0) else {"devices": ["cpu", "cuda"]}
    _distributed.Backend.register_backend(BACKEND, _create, **more)


def shutdown(timeout=_EXIT_PATIENCE):
    """Leaves the job, when all have come here or after `timeout` seconds; for programs that go on without it.

    Groups that are left fail from then on. A program that ends does it by itself.
    """
    failure = _c10d.leave(True, timeout)
    if failure:
        raise RuntimeError(failure)


def _leave():
    # What has failed does not wait for the others, who are told.
    _c10d.leave(getattr(_sys, "last_type", None) is None, _EXIT_PATIENCE)


_register()
_atexit.register(_leave)
_os.register_at_fork(after_in_child=_c10d.forget)

from dunlin._gossip import GossipState, gossip_hook  # noqa: E402
