"""Averages of models with the neighbors in a node graph, without waiting for other ranks (ASAP)."""

from dunlin import _dunlin
from dunlin.graph import Graph

__all__ = ["StochasticReduce"]


class StochasticReduce(_dunlin.StochasticReduce):
    """Averages a model with those of the in-neighbors in a node graph, once per step.

        reduce = dunlin.StochasticReduce(model.size, graph="root-expander")
        for step in range(steps):
            model -= rate * gradient(model)
            reduce.average(model)
        reduce.free()

    With start_average() the models travel, and are averaged, while Python computes:

        request = reduce.start_average(model, out=average)
        change = rate * gradient(model)
        model[:] = request.wait() - change

    The constructor is collective over all members of the job, with the same arguments; otherwise it raises
    InvalidArgumentError on all of them. All ranks make the same number of averages, except with "async".

    count: the number of elements of a model.
    graph: a text such as "ring", "root-expander" or "random-regular:3", or a dunlin.graph.Graph whose nodes are the
        members. An edge i -> j means that rank i sends its model to rank j. Models of all ranks come together only if
        the graph is strongly connected. In a job that processes may join, a text that has no graph of so many nodes
        stands for an exponential graph.
    sync: "notify-ack": an average waits for one model of each in-neighbor, and for no other rank. Its result depends on
        the models only, not on timing. "bsp": it waits for all ranks. "async": it waits for none, and uses the models
        that are new. In the last two, models that were overwritten while they were read are left out, and the other
        weights grow accordingly.
    depth: receive slots for each in-neighbor. With "notify-ack" a rank is at most this many averages ahead of a rank
        that it sends to.
    weighting: "uniform" (the model and each input get 1 / (in-degree + 1)) or "metropolis" (undirected graphs only).
    dtype: of the model: "float32" or "float64".
    name: for error messages.
    gpu: the number of the GPU in whose memory the models are, on all ranks; numbers may differ. The average then is one
        launch there, and models travel from GPU to GPU. It needs "notify-ack". None: host memory.

    If a rank dies, the average in progress and all later ones raise PeerDeadError, which names it. While Python
    computes, the background thread advances averages that were started; without it, calls of Dunlin do. It lasts until
    free(), reform() or shutdown(); later calls raise ClosedError. After reform(), make another one.
    """

    def __init__(self, count, graph="root-expander", sync="notify-ack", depth=2, weighting="uniform", dtype="float32",
                 name="model", gpu=None):
        super().__init__(count, graph._made if isinstance(graph, Graph) else graph, sync, depth, weighting, dtype, name,
                         gpu)

    def average(self, model, out=None):
        """Averages `model` and returns the array with the average, when the inputs that `sync` asks for have come.

        model: `count` elements of `dtype`. After an error they are unchanged.
        out: an array for the average, of as many elements. None: the model itself.

        Raises DeadlineExceededError after DUNLIN_DEADLINE, which names the rank that was waited for; the average
        continues then. Raises InvalidArgumentError while the last average is in progress.
        """
        return super().average(model, out)

    def start_average(self, model, out=None):
        """Sends `model` and returns a Request at once, whose wait() returns the average.

        With another array as `out`, the model may be used meanwhile. In host memory it is copied at once and may also be
        changed. On a GPU it is copied later, and must not be changed until the request is over. `out` must not be used
        until then, nor the model if out is None.
        """
        return super().start_average(model, out)

    def statistics(self):
        """A dictionary of what this rank has done in all: "reduces" that have ended; "inputs", the models that they
        used; "torn" and "stale" models that they left out, since they were overwritten while being read, or were not
        new; "bytes_sent"; seconds "waited" for inputs."""
        return super().statistics()

    def free(self):
        """Frees it. Collective. Raises InvalidArgumentError on all ranks if an average is in progress on one."""
        super().free()

    @property
    def name(self):
        """The name that was given to the constructor."""
        return super().name

    @property
    def count(self):
        """The number of elements of a model."""
        return super().count

    @property
    def dtype(self):
        """The type of a model's elements: "float32" or "float64"."""
        return super().dtype

    @property
    def sync(self):
        """The mode of synchronization."""
        return super().sync

    @property
    def depth(self):
        """The number of receive slots for each in-neighbor."""
        return super().depth

    @property
    def gpu(self):
        """The number of the GPU that was given to the constructor, or None."""
        return super().gpu
