"""Gradients averaged with neighbours instead of with everybody: a communication hook of DistributedDataParallel."""

import itertools as _itertools
import os as _os
import threading as _threading

import torch as _torch
import torch.distributed as _distributed

import dunlin as _dunlin

_states = _itertools.count()
_NOT_OURS = "the GossipState is the parent's: a forked child is in no job"


class GossipState:
    """Whom a model's gradients are averaged with: model.register_comm_hook(GossipState(graph), gossip_hook).

    graph: a dunlin.graph.Graph over the ranks, the same on all of them, with its weights for `weighting`. None: one
    peer per step, at the distances 1, 2, 4, ... in turn (one-peer exponential), which is everybody's average after
    log2(n) steps where n is a power of two.

    All ranks make their states in the same order, after init_process_group(), whose default group's ranks are the
    graph's nodes. A state is of one model.
    """

    def __init__(self, graph=None, weighting="metropolis"):
        if not _dunlin.is_initialized():
            _dunlin.init()  # shares the process group's job
        self.rank = _dunlin.rank()
        self.size = _dunlin.size()
        if (_distributed.get_rank(), _distributed.get_world_size()) != (self.rank, self.size):
            raise ValueError("gossip_hook needs a default process group of all ranks of the job")
        if graph is not None and graph.nodes != self.size:
            raise ValueError(f"a graph of {graph.nodes} nodes for {self.size} ranks")
        self.process = _os.getpid()
        self.step = 0
        self.name = f"gossip.{next(_states)}"
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


def _weighting(graph, wanted):
    return wanted if graph.is_undirected() else "uniform"


def gossip_hook(state, bucket):
    """The bucket's gradients, averaged with the neighbours' of this step, as a torch.futures.Future.

    On a GPU, they go through a copy in host memory, which this call makes; they are back there when the future ends.
    """
    if state.process != _os.getpid():
        raise RuntimeError(_NOT_OURS)
    own, sources, destinations = state.neighbors()
    gradients = bucket.buffer()
    name = f"{state.name}.{bucket.index()}"
    if bucket.is_last():
        state.step += 1
    future = _torch.futures.Future()
    if not sources and not destinations:
        future.set_result(gradients)
        return future
    is_staged = gradients.device.type != "cpu"
    host = gradients.cpu() if is_staged else gradients  # waits for what the current stream still does with them
    request = _dunlin.start_neighbor_average(host, sources=sources, destinations=destinations, self_weight=own,
                                             name=name, out=host)

    def finish():
        try:
            request.wait()
            if is_staged:
                gradients.copy_(host)
            future.set_result(gradients)
        except BaseException as error:  # also what ends the interpreter: the one who waits has to be told
            future.set_exception(error)

    _Waiter.run(future, finish)
    return future


class _Waiter:
    """A thread that ends buckets in the order in which they were started."""

    _lock = _threading.Lock()
    _queue = None
    _open = set()  # futures that have not ended

    @classmethod
    def forget(cls):
        """After fork(), in the child, which has the queue but not the thread.

        The parent's futures end with an error here, in threads of their own: callbacks may wait.
        """
        cls._lock = _threading.Lock()
        cls._queue = None
        inherited, cls._open = cls._open, set()
        for future in inherited:
            _threading.Thread(target=cls._fail, args=(future,), name="dunlin-forked", daemon=True).start()

    @staticmethod
    def _fail(future):
        if not future.done():
            future.set_exception(RuntimeError(_NOT_OURS))

    @classmethod
    def run(cls, future, task):
        """The task ends the future."""
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
            del future, task  # not kept until the next one


_os.register_at_fork(after_in_child=_Waiter.forget)
