"""Communication hooks of DistributedDataParallel: averages of gradients with neighbors instead of all ranks, and averages
around a ring that does not wait for a late rank."""

import itertools as _itertools
import os as _os
import threading as _threading

import torch as _torch
import torch.distributed as _distributed

import dunlin as _dunlin
from dunlin import _gpus, _survivors

_states = _itertools.count()
_IN_CHILD = "the state of the hook belongs to the parent process: a forked child is in no job"


class _OneModel:
    """Finds out that the state of a hook serves a second model, whose buckets would be averaged with those of the first."""

    def __init__(self):
        self._known = set()  # the parameters of the first pass
        self._is_first = True

    def check(self, bucket):
        parameters = set(map(id, bucket.parameters()))
        if not self._is_first and not parameters <= self._known:
            raise ValueError("the state of the hook serves another model already: make a state for each model")
        self._known |= parameters
        self._is_first = self._is_first and not bucket.is_last()


class GossipState:
    """The neighbors of a model's gradients: model.register_comm_hook(GossipState(graph), gossip_hook).

    graph: a dunlin.graph.Graph over the ranks, the same on all of them; `weighting` chooses its weights. None: one peer
    per step, at the distances 1, 2, 4, ... in turn (one-peer exponential). If the number of ranks n is a power of two,
    log2(n) such steps give the average of all ranks.

    on_peer_loss: None: as dunlin.init() has been told. "raise": after a death, gradients that need the dead rank raise
        an error. "continue", on all ranks: a rank's own gradients take the place of a dead neighbor's, as in
        dunlin.neighbor_average(). The hook survives, but DistributedDataParallel's own calls of the process group do
        not. It makes none after the second backward pass with broadcast_buffers=False and find_unused_parameters=False.

    All ranks make their states in the same order, after init_process_group(). The ranks of its default group are the
    graph's nodes. A state serves one model.
    """

    def __init__(self, graph=None, weighting="metropolis", on_peer_loss=None):
        self.rank, self.size = _check_default_group("gossip_hook", on_peer_loss)
        if graph is not None and graph.nodes != self.size:
            raise ValueError(f"the graph has {graph.nodes} nodes, but there are {self.size} ranks")
        if graph is not None and not graph.is_strongly_connected():
            raise ValueError("the graph is not strongly connected: some gradients would not reach all ranks")
        self.model = _OneModel()
        self.process = _os.getpid()
        self.step = 0
        self.name = f"gossip.{next(_states)}"
        self._is_on_gpu = None  # not known
        self._neighbors = None
        if graph is not None:
            own, sources = graph.weights(self.rank, _weighting(graph, weighting))
            self._neighbors = own, sources, graph.out_neighbors(self.rank)

    def neighbors(self):
        """(own weight, {source: weight}, [destination]) of this step."""
        if self._neighbors is not None:
            return self._neighbors
        if self.size == 1:
            return 1.0, {}, []
        distances = (self.size - 1).bit_length()
        distance = 1 << (self.step % distances)
        return 0.5, {(self.rank - distance) % self.size: 0.5}, [(self.rank + distance) % self.size]

    def is_on_gpu(self, device):
        """Whether the gradients, which are on this device, are averaged on a GPU. Collective in the first call on a GPU."""
        if self._is_on_gpu is None:
            # In host memory, no rank waits for all others.
            self._is_on_gpu = device.type == "cuda" and _gpus.can_all_use(device)
        return self._is_on_gpu


def _check_default_group(hook, on_peer_loss=None):
    """The rank and the number of ranks. ValueError unless the default process group has all of them."""
    _dunlin.init(on_peer_loss=on_peer_loss)  # the job of the process group
    ranks = _dunlin.rank(), _dunlin.size()
    if (_distributed.get_rank(), _distributed.get_world_size()) != ranks:
        raise ValueError(f"{hook} needs a default process group that has all ranks of the job")
    return ranks


def _weighting(graph, wanted):
    return wanted if graph.is_undirected() else "uniform"


def gossip_hook(state, bucket):
    """Averages the bucket's gradients with those of this step's neighbors. Returns a torch.futures.Future of them.

    Gradients on a GPU are averaged there, behind the current stream, if all ranks can use their GPUs. Otherwise they go
    through a copy in host memory, which this call makes, and are back on the GPU when the future is done. The ranks agree
    on that in the first call. Either all ranks have their gradients on a GPU, or none has.
    """
    if state.process != _os.getpid():
        raise RuntimeError(_IN_CHILD)
    state.model.check(bucket)
    own, sources, destinations = state.neighbors()
    gradients = bucket.buffer()
    name = f"{state.name}.{bucket.index()}"
    if bucket.is_last():
        state.step += 1
    if not sources and not destinations:
        future = _torch.futures.Future()
        future.set_result(gradients)
        return future
    is_staged = gradients.device.type != "cpu" and not state.is_on_gpu(gradients.device)
    memory = gradients.cpu() if is_staged else gradients  # waits for what the current stream still does with them
    # Without weights at the destinations, a rank's own gradients take the place of a dead source's.
    request = _dunlin.start_neighbor_average(memory, sources=sources, destinations=destinations, self_weight=own,
                                             name=name, out=memory)
    return _gradients_after(request, gradients, memory if is_staged else None)


def _gradients_after(request, gradients, result):
    """A future of the gradients, once the request is over. result: a tensor that has them then; None: they are there."""
    future = _torch.futures.Future()

    def finish():
        try:
            request.wait()
            if result is not None:
                gradients.copy_(result)
            future.set_result(gradients)
        except BaseException as error:  # all of them, as the waiting thread has to be told
            future.set_exception(error)

    _Waiter.run(future, finish)
    return future


class StragglerRingState:
    """model.register_comm_hook(StragglerRingState(), straggler_ring_hook): see straggler_ring_hook().

    late, step, transfer, alpha: as in dunlin.StragglerRing. All ranks make their states in the same order and with the same
    arguments, after init_process_group(), whose default group has all ranks of the job. A state serves one model.
    """

    def __init__(self, late="adaptive", step=0.0, transfer=0.0, alpha=2.0):
        _check_default_group("straggler_ring_hook")
        _survivors.refuse("straggler_ring_hook")
        self.model = _OneModel()
        self.process = _os.getpid()
        self.name = f"ring of buckets {next(_states)}"
        self.lateness = {"late": late, "step": step, "transfer": transfer, "alpha": alpha}
        self.rings = {}  # by index of the bucket

    def ring(self, bucket):
        """The ring of a bucket. Collective where the bucket is new, or has changed."""
        gradients, index = bucket.buffer(), bucket.index()
        dtype = "float64" if gradients.dtype == _torch.float64 else "float32"
        known = self.rings.get(index)
        if known is not None and (known.count, known.dtype) != (gradients.numel(), dtype):
            known.free()
            known = None
        if known is None:
            known = _dunlin.StragglerRing(gradients.numel(), dtype, name=f"{self.name}, {index}", **self.lateness)
            self.rings[index] = known
        return known


def straggler_ring_hook(state, bucket):
    """Averages the bucket's gradients over all ranks by a ring that does not wait for a late rank (dunlin.StragglerRing).

    Returns a torch.futures.Future of them. Every bucket has a ring, made in the first pass and when DistributedDataParallel
    changes its buckets. The gradients go through the ring's memory in host memory, in float64 if they are float64, and
    in float32 otherwise.
    """
    if state.process != _os.getpid():
        raise RuntimeError(_IN_CHILD)
    state.model.check(bucket)
    gradients = bucket.buffer()
    ring = state.ring(bucket)
    data = _torch.from_numpy(ring.data)
    data.copy_(gradients)  # waits for what the current stream still does with them
    return _gradients_after(ring.start_all_reduce(), gradients, data)


class _Waiter:
    """A thread that finishes buckets in the order in which they were started."""

    _lock = _threading.Lock()
    _queue = None
    _open = set()  # futures that are not done

    @classmethod
    def forget(cls):
        """Called after fork() in the child, which has the queue but not the thread.

        Sets an error in the child's copies of the futures, each in a thread of its own, as callbacks may wait.
        """
        cls._lock = _threading.Lock()
        cls._queue = None
        inherited, cls._open = cls._open, set()
        for future in inherited:
            _threading.Thread(target=cls._fail, args=(future,), name="dunlin-forked", daemon=True).start()

    @staticmethod
    def _fail(future):
        if not future.done():
            future.set_exception(RuntimeError(_IN_CHILD))

    @classmethod
    def run(cls, future, task):
        """Runs the task in the thread. The task has to set the future."""
        import queue

        with cls._lock:
            if cls._queue is None:
                cls._queue = queue.SimpleQueue()
                _threading.Thread(target=cls._serve, args=(cls._queue,), name="dunlin-gossip", daemon=True).start()
        cls._open.add(future)
        cls._queue.put((future, task))

    @classmethod
    def _serve(cls, tasks):
        while True:
            future, task = tasks.get()
            task()
            cls._open.discard(future)
            del future, task  # so that they don't live until the next one


_os.register_at_fork(after_in_child=_Waiter.forget)
