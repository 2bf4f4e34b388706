"""Dunlin: collectives, and averages with neighbors, between the processes of a job, on NumPy arrays and the like.

    import dunlin, numpy
    dunlin.init()
    gradients = numpy.ones(1000, numpy.float32)
    dunlin.all_reduce(gradients, "avg", out=gradients)

Start it with `dunlin-run -n 4 python3 program.py`, torchrun, mpirun or srun; alone, it is a job of one rank.

All ranks make the same calls in the same order, with the same shapes, types and operations. Arrays are NumPy's,
or anything in host memory with `__dlpack__` (PyTorch's tensors) or the buffer protocol; contiguous in C's order, of
int8, uint8, int32, int64, float16, bfloat16, float32 or float64. Arrays of `dunlin.empty` are fastest: peers on
this host read them in place.

Failures are subclasses of `dunlin.Error`; every wait has a deadline (DUNLIN_DEADLINE, 30 s). Any thread may call;
calls of several threads on one communicator need an order that is the same on all ranks. Waiting calls let other
threads run, and can be interrupted with Ctrl-C: what was waited for goes on then.
"""

import atexit as _atexit
import os as _os
import sys as _sys

from dunlin import _dunlin, graph
from dunlin._dunlin import Communicator, Machines, Request
from dunlin.errors import (AlreadyExistsError, ClosedError, CorruptedError, DeadlineExceededError, Error, InternalError,
                           InvalidArgumentError, IoError, NotFoundError, OutOfRangeError, PeerDeadError,
                           PeerStalledError, PermissionDeniedError, ResourceExhaustedError, UnavailableError)
from dunlin.groups import GroupAverage
from dunlin.onesided import Mutex, Window

__all__ = [
    "AlreadyExistsError", "ClosedError", "Communicator", "CorruptedError", "DeadlineExceededError", "Error",
    "GroupAverage", "InternalError", "InvalidArgumentError", "IoError", "Machines", "Mutex", "NotFoundError", "OutOfRangeError",
    "PeerDeadError", "PeerStalledError", "PermissionDeniedError", "Request", "ResourceExhaustedError",
    "UnavailableError", "Window",
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "check_neighbors", "empty", "free", "graph",
    "init", "is_initialized", "local_rank", "local_size", "neighbor_average", "neighbor_gather",
    "partial_all_reduce", "rank", "reduce", "reduce_scatter", "shutdown", "size", "split", "start_all_gather", "start_all_reduce", "start_all_to_all",
    "start_barrier", "start_broadcast", "start_neighbor_average", "start_neighbor_gather",
    "start_partial_all_reduce", "start_reduce", "start_reduce_scatter", "world", "zeros",
]

# At the end of a program that did not call shutdown(): how long the others are waited for, in seconds.
_EXIT_PATIENCE = 5.0

_world = None


def init(background_progress=True):
    """Joins the job that the environment describes. All ranks call it, once.

    Blocks until all have come, for DUNLIN_BOOTSTRAP_TIMEOUT (30 s) at most: DeadlineExceededError names who is
    missing. Ctrl-C is heard only when it returns, as in split().

    background_progress: operations that were started go on while Python does something else, by a thread that
        sleeps in between. Without it, only calls of Dunlin move them on.
    """
    global _world
    _dunlin.init(background_progress)
    _world = _dunlin.world()


def shutdown():
    """Leaves the job, when all ranks have called it and what is under way has ended.

    Raises DeadlineExceededError after DUNLIN_DEADLINE, PeerDeadError when a rank is dead; the job is left all the
    same. What was started and is not over fails with ClosedError. Arrays of empty() stay valid. Programs that end
    without it leave by themselves; those that end by an exception don't wait for the others.
    """
    global _world
    _world = None
    _dunlin.shutdown(True, None)


def is_initialized():
    """Whether this process is in a job: after init(), before shutdown()."""
    return _dunlin.is_initialized()


def world():
    """The communicator of all ranks."""
    if _world is None:
        _dunlin.job()  # raises
    return _world


def rank():
    """This process's number, 0 .. size() - 1."""
    return _dunlin.job()[0]


def size():
    """The number of ranks of the job."""
    return _dunlin.job()[1]


def local_rank():
    """This process's number among the ranks of this host, as the launcher counts them."""
    return _dunlin.job()[2]


def local_size():
    """The number of ranks of this host."""
    return _dunlin.job()[3]


def all_reduce(x, op="sum", out=None):
    """Element by element, `op` over all ranks' `x`: "sum", "prod", "min", "max" or "avg".

    Returns a new array of x's shape; or `out`, of as many elements, which may be x itself. The result is bitwise the
    same on all ranks.
    """
    return world().all_reduce(x, op, out)


def reduce(x, root=0, op="sum", out=None):
    """As all_reduce(), with the result at rank `root` alone; other ranks get None, and their `out` is not used."""
    return world().reduce(x, root, op, out)


def broadcast(x, root=0, out=None):
    """Rank `root`'s `x` on all ranks.

    Elsewhere, x says shape and type only. Returns a new array; or `out`, which may be x itself.
    """
    return world().broadcast(x, root, out)


def all_gather(x, out=None):
    """All ranks' `x`, in an array of shape (size(), *x.shape).

    `out`: an array of as many elements to put it in. In place, x is `out[rank()]`.
    """
    return world().all_gather(x, out)


def reduce_scatter(x, op="sum", out=None):
    """As all_reduce(), of which each rank gets its part along the first axis, which size() has to divide.

    `out`: an array of x.size / size() elements. In place, it is the rank's part of x; then the rest of x is undefined.
    """
    return world().reduce_scatter(x, op, out)


def all_to_all(x, out=None):
    """Part r of rank s's result is part s of rank r's `x`. Parts are along the first axis, which size() has to divide.

    `out`: an array of x.size elements, apart from x.
    """
    return world().all_to_all(x, out)


def barrier():
    """Returns when all ranks have called it."""
    world().barrier()


def start_all_reduce(x, op="sum", out=None):
    """all_reduce() that returns a Request at once. Until it is over, x and out belong to it."""
    return world().start_all_reduce(x, op, out)


def start_reduce(x, root=0, op="sum", out=None):
    """reduce() that returns a Request at once."""
    return world().start_reduce(x, root, op, out)


def start_broadcast(x, root=0, out=None):
    """broadcast() that returns a Request at once."""
    return world().start_broadcast(x, root, out)


def start_all_gather(x, out=None):
    """all_gather() that returns a Request at once."""
    return world().start_all_gather(x, out)


def start_reduce_scatter(x, op="sum", out=None):
    """reduce_scatter() that returns a Request at once."""
    return world().start_reduce_scatter(x, op, out)


def start_all_to_all(x, out=None):
    """all_to_all() that returns a Request at once."""
    return world().start_all_to_all(x, out)


def start_barrier():
    """barrier() that returns a Request at once."""
    return world().start_barrier()


def neighbor_average(x, sources=None, destinations=None, self_weight=1.0, name="", out=None):
    """self_weight * x + the sum over the sources of (weight here) * (weight there) * (their x).

    sources: {rank: weight}, or ranks, whose weights are 1; those whose x comes here. None: nobody's.
    destinations: the same; those whom x goes to. They may be others in each call.
    name: calls of the same name meet: the k-th in which one rank sends to another, and the k-th in which that one
        expects it, whatever else either has under way.

    Only the neighbors concerned take part. x is of a floating-point type, of the same size at all of them, else
    InvalidArgumentError. Returns a new array of x's shape; or `out`, which may be x itself. The result depends on
    values and the order of the sources alone, and is bitwise the same in every run.

    A neighbor that never makes its call is a DeadlineExceededError after DUNLIN_DEADLINE; one that is dead, a
    PeerDeadError; other calls go on. check_neighbors() has all ranks find out beforehand.
    """
    return _dunlin.neighbor_average(x, sources, destinations, self_weight, name, out)


def neighbor_gather(x, sources=None, destinations=None, name=""):
    """The sources' `x`: a list of new arrays, in the order in which the sources are given.

    Neighbors and name: as neighbor_average(), with which it shares the names; weights don't count. The first axes may
    differ; the types and the other axes are the same at all neighbors, else InvalidArgumentError. Where x
    has no axes, the arrays have one. Rows without elements can't be counted: they are none.
    """
    return _dunlin.neighbor_gather(x, sources, destinations, name)


def check_neighbors(sources=None, destinations=None):
    """InvalidArgumentError on all ranks, unless each rank is a source of exactly those that are its destinations.

    Collective over all ranks of the job; nothing else is sent.
    """
    _dunlin.check_neighbors(sources, destinations)


def start_neighbor_average(x, sources=None, destinations=None, self_weight=1.0, name="", out=None):
    """neighbor_average() that returns a Request at once. Until it is over, x and out belong to it."""
    return _dunlin.start_neighbor_average(x, sources, destinations, self_weight, name, out)


def start_neighbor_gather(x, sources=None, destinations=None, name=""):
    """neighbor_gather() that returns a Request at once. Until it is over, x belongs to it."""
    return _dunlin.start_neighbor_gather(x, sources, destinations, name)


def partial_all_reduce(x, ranks, op="avg", name="", number=None, out=None):
    """all_reduce() among `ranks` alone, this one among them, in any order; they may be others in each call.

    name, number: calls of one name have numbers, from 1 on, that all their members know them by, and that go up at
        each rank, which carries them out one after the other. None: one more than that of this rank's last call of the
        name. That is the same at all members where all ranks make as many calls, as when each is in one group per
        step; else give a number that says in which order all groups come. A name takes 6 MiB of memory.

    Nobody else takes part, and nothing is set up for a group. Members that call different things under one number get
    InvalidArgumentError, which names who differs. One that is dead is a PeerDeadError; one that has not come after
    DUNLIN_DEADLINE a DeadlineExceededError or PeerStalledError: the call is given up then, and later ones go on.
    Returns a new array of x's shape; or `out`, which may be x itself, and after an error holds anything.
    """
    return _dunlin.partial_all_reduce(x, ranks, op, name, number, out)


def start_partial_all_reduce(x, ranks, op="avg", name="", number=None, out=None):
    """partial_all_reduce() that returns a Request at once. Until it is over, x and out belong to it."""
    return _dunlin.start_partial_all_reduce(x, ranks, op, name, number, out)


def empty(shape, dtype="float32"):
    """A new NumPy array in the communicator's memory, which operations use without copying. Zeroed.

    Collective: all ranks ask for as many bytes, in the same order. The memory stays registered, and mapped by the
    peers, until free() or shutdown(), whether or not the array is still used; the array stays valid for as long as
    anybody has it.
    """
    return world().empty(shape, dtype)


def zeros(shape, dtype="float32"):
    """empty(), whose memory is zeroed."""
    return world().empty(shape, dtype)


def free(array):
    """Gives the memory of an array of empty() back to being memory like any other.

    Collective: all ranks free the same arrays in the same order. Waits for the operations under way. `array` begins
    where that of empty() did, else InvalidArgumentError; it, and views of it, stay valid.
    """
    world().free(array)


def split(color, key=None):
    """A communicator of the ranks that give the same `color`, ordered by `key`, then by rank (the default).

    Collective. It lasts until its release() or shutdown().
    """
    return world().split(color, key)


def _leave():
    if not _dunlin.is_initialized():
        return
    failed = getattr(_sys, "last_type", None) is not None
    try:
        _dunlin.shutdown(not failed, _EXIT_PATIENCE)
    except (Error, KeyboardInterrupt):
        pass  # the others have failed, or are busy; either way it is theirs to tell


def _forget():
    global _world
    _world = None
    _dunlin.forget()


_atexit.register(_leave)
_os.register_at_fork(after_in_child=_forget)
