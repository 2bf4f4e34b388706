"""Dunlin: collectives and averages with neighbors between the processes of a job, on NumPy and similar arrays.

    import dunlin, numpy
    dunlin.init()
    gradients = numpy.ones(1000, numpy.float32)
    dunlin.all_reduce(gradients, "avg", out=gradients)

Start a program with `dunlin-run -n 4 python3 program.py`, torchrun, mpirun or srun. Without a launcher it is a job of
one rank.

All ranks make the same calls in the same order, with the same shapes, types and reductions. An array is a NumPy array,
or anything in host memory with `__dlpack__` (such as PyTorch's tensors) or the buffer protocol. It has to be contiguous
in C order, with elements of int8, uint8, int32, int64, float16, bfloat16, float32 or float64. Arrays of `dunlin.empty`
are the fastest, as peers on this host read them in place.

Arrays in the memory of an NVIDIA GPU, which have `__dlpack__` or `__cuda_array_interface__` (those of PyTorch, CuPy,
Numba, JAX), can be given to all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, neighbor_average and
their start_... forms, and to Window. Input and output are on the same GPU. A call is ordered behind the stream that the
array names. Its result is complete, for all streams, when the call returns or Request.wait() does. Without `out=`, the
result is a `dunlin.GpuArray`, which those packages read without copying.

Errors are subclasses of `dunlin.Error`. Every wait has a deadline (DUNLIN_DEADLINE, 30 s). Any thread may call. If
several threads use one communicator, their calls need an order that is the same on all ranks. Calls that wait let other
Python threads run. Ctrl-C interrupts the wait; the operation continues.
"""

import atexit as _atexit
import os as _os
import sys as _sys

from dunlin import _dunlin, _survivors, graph
from dunlin._dunlin import Communicator, GpuArray, Machines, Request
from dunlin._version import __version__
from dunlin.errors import (AlreadyExistsError, ClosedError, CorruptedError, DeadlineExceededError, Error, InternalError,
                           InvalidArgumentError, IoError, NotFoundError, OutOfRangeError, PeerDeadError,
                           PeerStalledError, PermissionDeniedError, ResourceExhaustedError, UnavailableError)
from dunlin.groups import GroupAverage
from dunlin.onesided import Mutex, Window
from dunlin.pairs import PairAverage
from dunlin.servers import ParameterServers
from dunlin.stochastic import StochasticReduce
from dunlin.straggler import StragglerRing

__all__ = [
    "AlreadyExistsError", "ClosedError", "Communicator", "CorruptedError", "DeadlineExceededError", "Error",
    "GpuArray", "GroupAverage", "InternalError", "InvalidArgumentError", "IoError", "Machines", "Mutex",
    "NotFoundError", "OutOfRangeError", "PairAverage", "ParameterServers", "PeerDeadError", "PeerStalledError",
    "PermissionDeniedError", "Request", "ResourceExhaustedError", "StochasticReduce", "StragglerRing",
    "UnavailableError", "Window", "__version__",
    "all_gather", "all_reduce", "all_to_all", "barrier", "begin_step", "broadcast", "changes_before", "check_neighbors",
    "empty", "free", "graph", "init", "is_initialized", "is_newcomer", "local_rank", "local_size", "members",
    "neighbor_average", "neighbor_gather", "partial_all_reduce", "rank", "reduce", "reduce_scatter", "reform", "retire",
    "share_model", "shutdown", "size", "split", "start_all_gather",
    "start_all_reduce", "start_all_to_all", "start_barrier", "start_broadcast", "start_neighbor_average",
    "start_neighbor_gather", "start_partial_all_reduce", "start_reduce", "start_reduce_scatter", "world", "zeros",
]

# How long a program that did not call shutdown() waits at its end for the other ranks, in seconds.
_EXIT_TIMEOUT = 5.0

_world = None


def init(background_progress=True, on_peer_loss=None):
    """Joins the job that the environment describes. All ranks call it. In a job it does nothing, so that a cell of a
    notebook may be run again; after an error it begins anew.

    Blocks until all ranks have joined, for DUNLIN_BOOTSTRAP_TIMEOUT (30 s) at most; then DeadlineExceededError names
    the missing ranks. Ctrl-C takes effect only when it returns, as in split().

    background_progress: a background thread advances operations that were started while Python does something else. It
        sleeps between events. Without it, only calls of Dunlin advance them.
    on_peer_loss: the same on all ranks. "raise" (the default): a call with a dead rank raises PeerDeadError, and so do
        all later ones. "continue": neighbor_average(), neighbor_gather(), their start_... forms and Window go on without
        ranks that have died, and tell how in their documentation. Collectives of world() raise PeerDeadError until
        the survivors have called reform(). UnavailableError in a job that processes may join, where reform() does all.
    """
    global _world
    is_in_job = _dunlin.is_initialized()
    _survivors.choose(on_peer_loss, is_in_job)
    if is_in_job:
        return
    _dunlin.init(background_progress)
    _world = _dunlin.world()
    if not _survivors.goes_on():
        return
    try:
        if _dunlin.is_elastic():
            _survivors.refuse("a job that processes may join")
        # A rank that has not asked for it makes another call, and both are told.
        _world.barrier(f'init(on_peer_loss="{_survivors.CONTINUE}")')
    except Exception:
        _dunlin.shutdown(False, None)
        _world = None
        _survivors.forget()
        raise


def shutdown():
    """Leaves the job when all ranks have called it and outstanding operations have ended.

    Raises DeadlineExceededError after DUNLIN_DEADLINE and PeerDeadError if a rank is dead; the job is left all the
    same. Operations that are not over then fail with ClosedError. Arrays of empty() stay valid. A program that ends
    leaves the job without this call; if it ends by an exception it doesn't wait for the other ranks.

    After a death, it doesn't wait for the other ranks either, unless they have called reform() since. With
    init(on_peer_loss="continue"), it doesn't raise PeerDeadError then.
    """
    global _world
    _world = None
    goes_on = _survivors.goes_on()
    try:
        _dunlin.shutdown(True, None)
    except PeerDeadError:
        if not goes_on:
            raise
    finally:
        if not _dunlin.is_initialized():
            _survivors.forget()


def is_initialized():
    """Whether this process is in a job, that is, between init() and shutdown()."""
    return _dunlin.is_initialized()


def world():
    """The communicator of all ranks."""
    global _world
    if _world is None:
        _dunlin.job()  # raises without a job
        _world = _dunlin.world()  # in a job if this module was reloaded
    return _world


def rank():
    """This process's rank, 0 .. size() - 1."""
    return _dunlin.job()[0]


def size():
    """The number of ranks of the job. In one that processes join, the most that there can ever be: see members()."""
    return _dunlin.job()[1]


def is_newcomer():
    """Whether this process has joined a running job, and has no model of it yet (share_model())."""
    return _dunlin.is_newcomer()


def members():
    """The ranks that take part, in ascending order: all of the job's, or, once members have changed, those that the last
    reform() has returned. world() consists of them.

    With init(on_peer_loss="continue"), ranks that have died or left since then are left out. Ranks hear of a death within
    a second, but not at the same moment.
    """
    return [each for each in _dunlin.members() if not _survivors.is_gone(each)]


def changes_before(step, in_step=True):
    """Whether the members change before this step, since processes have joined, or members are to leave. In a job that
    no process can join it is always False.

    Every member calls it before each step of its work, with the step's number, which grows. It returns True on all
    members before the same step, which none has begun; then each calls reform(). It costs no message while nothing is
    to change. It may wait for the others' answers, which their libraries give, even in a step.

    step: None: before the end of this member's work. From then on, members do not change any more.
    in_step: False: the members go at their own pace (GroupAverage, StochasticReduce with sync="async"). Then it returns
        True on each as soon as all have been asked, before different steps.
    """
    return _dunlin.changes_before(step, in_step)


def reform(timeout=None):
    """Agrees on the members from now on, and returns their ranks. Every member calls it where changes_before() says so,
    after a PeerDeadError, and, to begin, before the first step. A newcomer calls it when it is ready to take part.

    world() has the new members. Everything that the former members have made together is closed: communicators,
    StochasticReduce, GroupAverage. Windows, mutexes, Machines, PairAverage, ParameterServers, static groups and
    check_neighbors need all ranks of a job, and raise UnavailableError in a job that processes may join, and after a
    reform() without some of the ranks. Windows that were made before go on among the members.

    With init(on_peer_loss="continue"), the members call it at the same place of their program, such as the end of an
    epoch, whether or not a rank has died. It begins anew if a member dies meanwhile. Ranks keep their numbers. In
    calls of world(), a root is a member's place in members().

    Returns an empty list if this rank has retired: it has left the job, as after shutdown().

    timeout: seconds to wait for the others, which may be in a step. None: DUNLIN_DEADLINE, or
        DUNLIN_BOOTSTRAP_TIMEOUT if that is longer.

    Raises PeerDeadError if a member dies meanwhile, and UnavailableError if the members are at their end. No other
    thread may use Dunlin meanwhile. Ctrl-C takes effect when it returns.
    """
    global _world
    while True:
        try:
            is_member = _dunlin.reform(timeout)
            break
        except PeerDeadError:
            if not _survivors.goes_on():
                raise
    _world = None
    if is_member:
        return _dunlin.members()
    _dunlin.shutdown(False, None)
    return []


def share_model(model, version=0, timeout=None):
    """Brings the model to newcomers: each reads that of another member, by one-sided reads, into `model`. Every member
    calls it after reform(), once. Returns when all have read: the version of the model, which is `version` on all
    members but newcomers, such as the number of the next step.

    model: an array of the same size on all members. After an error it is undefined on newcomers.
    """
    return _dunlin.share_model(model, version, timeout)


def retire():
    """This rank is to leave where the members change next, with all its work done. May be called at any time, also by a
    signal handler. The next call of changes_before() asks for a change."""
    _dunlin.retire()


def local_rank():
    """This process's number among the ranks of this host, as the launcher has numbered them."""
    return _dunlin.job()[2]


def local_size():
    """The number of ranks on this host."""
    return _dunlin.job()[3]


def begin_step(number):
    """The program's own loop begins its next step, which has this number. `dunlin-top` then knows which ranks are slow.
    """
    _dunlin.begin_step(number)


def all_reduce(x, op="sum", out=None, name=""):
    """Reduces all ranks' `x` element by element with `op`: "sum", "prod", "min", "max" or "avg".

    Returns a new array of x's shape, or fills and returns `out`, which has as many elements and may be x itself. The
    result is bitwise the same on all ranks.

    name: has to be the same on all ranks; otherwise each rank that waits gets InvalidArgumentError, which names both
    calls. Calls are matched by their order, not by their names.
    """
    return world().all_reduce(x, op, out, name)


def reduce(x, root=0, op="sum", out=None, name=""):
    """As all_reduce(), but only rank `root` gets the result. Other ranks get None, and their `out` is not used.

    x and out may be arrays of empty() at some ranks and others at the rest: a reduce always copies. name: as in
    all_reduce().
    """
    return world().reduce(x, root, op, out, name)


def broadcast(x, root=0, out=None, name=""):
    """Copies rank `root`'s `x` to all ranks.

    On other ranks, x only gives the shape and the type. Returns a new array, or fills and returns `out`, which may be x
    itself. name: as in all_reduce().
    """
    return world().broadcast(x, root, out, name)


def all_gather(x, out=None, name=""):
    """Gathers all ranks' `x` in an array of shape (size(), *x.shape).

    `out`: an array of as many elements that is filled and returned. For use in place, x is `out[rank()]`. name: as in
    all_reduce().
    """
    return world().all_gather(x, out, name)


def reduce_scatter(x, op="sum", out=None, name=""):
    """As all_reduce(), but each rank gets only its part along the first axis, whose length size() has to divide.

    `out`: an array of x.size / size() elements that is filled and returned. For use in place, it is the rank's part of
    x; the rest of x is undefined then. name: as in all_reduce().
    """
    return world().reduce_scatter(x, op, out, name)


def all_to_all(x, out=None, name=""):
    """Exchanges parts: part r of rank s's result is part s of rank r's `x`.

    Parts lie along the first axis, whose length size() has to divide. `out`: an array of x.size elements that doesn't
    overlap x; it is filled and returned. name: as in all_reduce().
    """
    return world().all_to_all(x, out, name)


def barrier(name=""):
    """Returns when all ranks have called it. name: as in all_reduce()."""
    world().barrier(name)


def start_all_reduce(x, op="sum", out=None, name=""):
    """Starts all_reduce() and returns a Request at once. Until that is over, x and out must not be used.

    This holds for all start_... functions.
    """
    return world().start_all_reduce(x, op, out, name)


def start_reduce(x, root=0, op="sum", out=None, name=""):
    """Starts reduce() and returns a Request at once."""
    return world().start_reduce(x, root, op, out, name)


def start_broadcast(x, root=0, out=None, name=""):
    """Starts broadcast() and returns a Request at once."""
    return world().start_broadcast(x, root, out, name)


def start_all_gather(x, out=None, name=""):
    """Starts all_gather() and returns a Request at once."""
    return world().start_all_gather(x, out, name)


def start_reduce_scatter(x, op="sum", out=None, name=""):
    """Starts reduce_scatter() and returns a Request at once."""
    return world().start_reduce_scatter(x, op, out, name)


def start_all_to_all(x, out=None, name=""):
    """Starts all_to_all() and returns a Request at once."""
    return world().start_all_to_all(x, out, name)


def start_barrier(name=""):
    """Starts barrier() and returns a Request at once."""
    return world().start_barrier(name)


def neighbor_average(x, sources=None, destinations=None, self_weight=1.0, name="", out=None):
    """Returns self_weight * x + the sum over the sources of (weight here) * (weight at the source) * (its x).

    sources: the ranks whose x this rank receives: {rank: weight}, or ranks, whose weights are 1. None: no ranks.
    destinations: the ranks that receive this rank's x, in the same form. Both may differ from call to call.
    name: the k-th call of a name in which a rank sends to another matches the k-th call of that name in which the other
        rank receives from it. Other calls in progress don't matter. Each name takes about 100 bytes per neighbor until
        shutdown(), so use the same ones again.

    Only the neighbors concerned take part. x has a floating-point type and the same size at all of them, otherwise
    InvalidArgumentError is raised. x may be in the memory of a GPU, at all of them or at none; a process uses one GPU
    for such calls. The average is made there, behind the work of the array's stream.

    Returns a new array of x's shape, or fills and returns `out`, which may be x itself. The result only depends on the
    values and on the order of the sources; it is bitwise the same in every run.

    Raises DeadlineExceededError if a neighbor has not made its call within DUNLIN_DEADLINE, and PeerDeadError if it is
    dead. Other calls continue. check_neighbors() checks beforehand that the ranks' neighbors match.

    With init(on_peer_loss="continue"), it goes on without dead neighbors, also if one dies during the call, and the sum
    of the weights stays what it was:
        Weights of sources: x takes the place of a dead source's, with that weight. If the weights are symmetric and add
            up to 1 at each rank, the mean of the survivors' x stays the same.
        destinations as a dictionary, and sources without weights: dead sources are left out, and the weight of a
            destination that was dead before the call is added to self_weight. If a rank's self_weight and the weights
            of its destinations add up to 1, the sum of the survivors' x stays the same.
        Both with weights other than 1: InvalidArgumentError.
    What a rank has sent before its death counts at the neighbors, and in the elements, that it has reached. This
    concerns the call in which it dies, and those that a neighbor makes later than it.
    """
    return _dunlin.neighbor_average(x, sources, destinations, self_weight, name, out,
                                    _survivors.on_death(sources, destinations))


def neighbor_gather(x, sources=None, destinations=None, name=""):
    """Returns the sources' `x` as a list of new arrays, in the order of the sources.

    sources, destinations, name: as for neighbor_average(), which uses the same names. Weights have no effect. The
    lengths of the first axes may differ. The type and the other axes are the same at all neighbors, otherwise
    InvalidArgumentError is raised. If x has no axes, the arrays have one. If rows have no elements, none arrive, as
    they can't be counted.

    With init(on_peer_loss="continue"), the list has None in the place of a source that has died before its x arrived.
    """
    if _survivors.goes_on():
        return _survivors.Gathering(x, sources, destinations, name).wait()
    return _dunlin.neighbor_gather(x, sources, destinations, name)


def check_neighbors(sources=None, destinations=None):
    """Raises InvalidArgumentError on all ranks unless their sources and destinations match.

    They match if each rank is a source at exactly those ranks that it has as destinations. Collective over all ranks of
    the job.
    """
    _dunlin.check_neighbors(sources, destinations)


def start_neighbor_average(x, sources=None, destinations=None, self_weight=1.0, name="", out=None):
    """Starts neighbor_average() and returns a Request at once. Until that is over, x and out must not be used."""
    return _dunlin.start_neighbor_average(x, sources, destinations, self_weight, name, out,
                                          _survivors.on_death(sources, destinations))


def start_neighbor_gather(x, sources=None, destinations=None, name=""):
    """Starts neighbor_gather() and returns a Request at once. Until that is over, x must not be used."""
    if _survivors.goes_on():
        return _survivors.Gathering(x, sources, destinations, name)
    return _dunlin.start_neighbor_gather(x, sources, destinations, name)


def partial_all_reduce(x, ranks, op="avg", name="", number=None, out=None, label=""):
    """all_reduce() among `ranks` alone, which include this one. They may differ from call to call, in any order.

    x: an array, in host memory or in the memory of a GPU. All calls of a name use the same kind of memory and, at one
        rank, the same GPU.
    name, number: calls of one name are numbered from 1 on. All members of a call give the same number. The numbers of a
        rank's calls increase, and the calls are carried out one after the other. None: one more than the number of this
        rank's last call of the name. That fits if all ranks make the same number of calls, for example if each is in
        one group per step. Otherwise give numbers that put all groups in one order. A name takes 6 MiB of memory.
    label: what the call is for. Calls under one number whose labels differ raise InvalidArgumentError.

    Other ranks take no part, and nothing is set up for a group. Raises InvalidArgumentError, which names the rank that
    differs, if members make different calls under one number. Raises PeerDeadError if a member is dead, and
    DeadlineExceededError or PeerStalledError if a member has not made its call within DUNLIN_DEADLINE. The call is
    given up then, and later ones continue. Returns a new array of x's shape, or fills and returns `out`, which may be x
    itself. After an error the contents of `out` are undefined.
    """
    return _dunlin.partial_all_reduce(x, ranks, op, name, number, out, label)


def start_partial_all_reduce(x, ranks, op="avg", name="", number=None, out=None, label=""):
    """Starts partial_all_reduce() and returns a Request at once. Until that is over, x and out must not be used."""
    return _dunlin.start_partial_all_reduce(x, ranks, op, name, number, out, label)


def empty(shape, dtype="float32", device=None):
    """A new NumPy array, filled with zeros, in the communicator's memory.

    Operations use it without copying if all ranks pass memory of the same empty(), at the same place of it. If only some
    ranks do, they raise InvalidArgumentError, and the communicator can't be used any more. reduce() always copies.

    device: the number of a GPU. The result is then a GpuArray in its memory, with undefined contents.

    Collective: all ranks ask for the same number of bytes, in the same order. The memory stays registered, and mapped
    by peers, until free() or shutdown(), whether or not the array is still used. The array stays valid as long as it is
    referred to.
    """
    return world().empty(shape, dtype, device)


def zeros(shape, dtype="float32"):
    """The same as empty() in host memory, whose arrays are filled with zeros."""
    return world().empty(shape, dtype)


def free(array):
    """Turns the memory of an array of empty() into ordinary memory.

    Collective: all ranks free the same arrays in the same order. Waits for outstanding operations. `array` has to begin
    where the array of empty() began, otherwise InvalidArgumentError is raised. It and views of it stay valid.
    """
    world().free(array)


def split(color, key=None):
    """A communicator of the ranks that give the same `color`, ordered by `key` and then by rank (default: by rank).

    Collective. The communicator lasts until its release() or shutdown().
    """
    return world().split(color, key)


def _leave():
    if not _dunlin.is_initialized():
        return
    failed = getattr(_sys, "last_type", None) is not None
    try:
        _dunlin.shutdown(not failed, _EXIT_TIMEOUT)
    except (Error, KeyboardInterrupt):
        pass  # ranks that have failed, or are late, report that themselves


def _forget():
    global _world
    _world = None
    _survivors.forget()
    _dunlin.forget()


_atexit.register(_leave)
_os.register_at_fork(after_in_child=_forget)
