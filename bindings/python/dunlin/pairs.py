"""Training in which workers average their models in pairs, while they compute (AD-PSGD)."""

from dunlin import _dunlin

__all__ = ["PairAverage"]


class PairAverage(_dunlin.PairAverage):
    """Averages a worker's model with one random neighbor at a time (AD-PSGD, Lian et al. 2018).

        pairs = dunlin.PairAverage(model.size)
        for step in range(steps):
            model -= rate * gradient(model)
            pairs.average(model)
        pairs.leave(model)

    The constructor is collective over all ranks, with the same arguments; otherwise it raises InvalidArgumentError on
    all of them. Afterwards each rank goes at its own pace.

    Each rank has a model inside this object, too. Neighbors may average with that while Python computes. average() adds
    to it what Python has changed in the array since the last call, averages it with a neighbor, and copies it to the
    array. An average of two ranks keeps their sum.

    count: the number of float32 elements of a model.
    graph: a text such as "ring" or "complete" (dunlin.graph.make). The direction of edges has no meaning.
    seed: of the choice of neighbors.
    name: for error messages.

    If a rank dies, the others continue without it. While Python computes, the background thread serves the neighbors;
    without it, calls of Dunlin do. The object and its memory last until shutdown(); later calls raise ClosedError.
    """

    def __init__(self, count, graph="complete", seed=1, name="pairs"):
        super().__init__(count, graph, seed, name)

    def average(self, model):
        """Averages with a neighbor in place, and returns `model` when the rank may compute again.

        model: `count` float32 elements. In the first call they are this rank's initial model, and later what it has
        made of the last call's result. After an error they are unchanged.

        If all neighbors are busy, or have left, the rank continues without an average. Raises DeadlineExceededError
        after DUNLIN_DEADLINE, which names the neighbor; the average continues then. Raises InvalidArgumentError while
        the last average is in progress, and after leave().
        """
        return super().average(model)

    def start_average(self, model):
        """Starts average() and returns a Request at once. Until that is over, the model must not be used."""
        return super().start_average(model)

    def leave(self, model=None):
        """Ends this rank's averages, and returns `model`, which gets the model with the last of them.

        To be called before shutdown(). Waits until the neighbors know. Changes of the array since the last average()
        are lost. The other ranks continue. After DeadlineExceededError and Ctrl-C this rank is still leaving, and the
        next call waits for that again.
        """
        return super().leave(model)

    def statistics(self):
        """A dictionary: "iterations", which are calls of average(); "averages" with neighbors, whichever of the two
        asked for them; "bytes_sent"; seconds "waited"."""
        return super().statistics()

    @property
    def name(self):
        """The name that was given to the constructor."""
        return super().name

    @property
    def count(self):
        """The number of elements of a model."""
        return super().count

    @property
    def graph(self):
        """The graph that was given to the constructor."""
        return super().graph
