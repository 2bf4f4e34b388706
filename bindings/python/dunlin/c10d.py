"""Dunlin as a backend of torch.distributed.

    import torch.distributed, dunlin.c10d

    torch.distributed.init_process_group("dunlin")

Importing this module registers the backend "dunlin". Any launcher and init_method will do: torchrun, dunlin-run, or an
explicit rank, world_size and init_method. The process group and dunlin.init() share one job, whichever comes first.
CUDA tensors stay on the GPU in most collectives, if all members can use theirs (bindings/c10d/README.md). Other calls
copy them to host memory and back.

Groups of all sizes and subsets, DistributedDataParallel and FullyShardedDataParallel's calls work as with gloo. If a
rank dies, or is absent for longer than the group's timeout, calls raise a RuntimeError that names it.
"""

import atexit as _atexit
import os as _os
import sys as _sys

from dunlin import _c10d_build

__all__ = ["BACKEND", "gossip_hook", "GossipState", "shutdown", "straggler_ring_hook", "StragglerRingState"]

BACKEND = "dunlin"
_EXIT_TIMEOUT = 5.0  # seconds that a process waits at its end for the others to end as well
_BUILD_AGAIN = ("build Dunlin again in its source tree: `pip install --force-reinstall --no-deps .`, or "
                "`meson setup --reconfigure BUILD` and `meson install -C BUILD`")


def _release(version):
    """(2, 1) of "2.1.0+cpu"."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


if not _c10d_build.TORCH_VERSION:
    raise ImportError(f"dunlin.c10d was left out when Dunlin was built ({_c10d_build.MISSING or 'by option'}). "
                      f"Install PyTorch with its headers, then {_BUILD_AGAIN}.")
try:
    import torch as _torch
    import torch.distributed as _distributed
except ImportError as error:
    raise ImportError(
        f"dunlin.c10d needs PyTorch {_c10d_build.TORCH_VERSION}, which it was built for: {error}") from error
if _release(_torch.__version__) != _release(_c10d_build.TORCH_VERSION):
    raise ImportError(f"dunlin.c10d was built for PyTorch {_c10d_build.TORCH_VERSION}, but this is PyTorch "
                      f"{_torch.__version__}: {_BUILD_AGAIN}.")

from dunlin import _c10d  # noqa: E402


def _create(store, rank, size, timeout):
    # The default group's store ends with the group, unless torchrun's agent has it.
    is_default = not _distributed.is_initialized()
    has_agent = _os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    group = _c10d.create(store, rank, size, timeout, is_default and not has_agent)
    _c10d.hide_job_secret()
    return group


def _register():
    more = {} if _release(_torch.__version__) < (2, 0) else {"devices": ["cpu", "cuda"]}
    _distributed.Backend.register_backend(BACKEND, _create, **more)


def shutdown(timeout=_EXIT_TIMEOUT):
    """Leaves the job when all ranks have called it, or after `timeout` seconds, for programs that continue without it.

    Groups of the job fail from then on. A program that ends leaves the job without this call.
    """
    failure = _c10d.leave(True, timeout)
    if failure:
        raise RuntimeError(failure)


def _leave():
    # A process that ends by an exception does not wait for the others, which are told.
    _c10d.leave(getattr(_sys, "last_type", None) is None, _EXIT_TIMEOUT)


_register()
_atexit.register(_leave)
_os.register_at_fork(after_in_child=_c10d.forget)

from dunlin._gossip import GossipState, StragglerRingState, gossip_hook, straggler_ring_hook  # noqa: E402
