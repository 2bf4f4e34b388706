"""Training in which workers average their models in groups, formed as the workers arrive (Ripples / Prague)."""

from dunlin import _dunlin

__all__ = ["GroupAverage"]


class GroupAverage(_dunlin.GroupAverage):
    """Averages a worker's model with those of a few others after each iteration.

        groups = dunlin.GroupAverage(model.size)
        for step in range(steps):
            model -= rate * gradient(model)
            groups.average(model)
        groups.leave()

    The constructor is collective over all members of the job, with the same arguments; otherwise it raises
    InvalidArgumentError on all of them. Afterwards each rank goes at its own pace: groups are formed of ranks that ask for
    one, so that a slow rank delays only few others.

    count: the number of float32 elements of a model.
    source: how groups are formed. "smart": the lowest rank forms them of waiting ranks, of which none is far behind.
        "random" and "buffered": it forms them at random. "static": by a fixed schedule, for ranks of equal speed.
    group_size: the largest number of ranks in a group.
    slowdown_threshold: "smart" puts no rank in a group with ranks that are this many iterations behind it.
    layout: (hosts, ranks per host), where ranks are numbered host by host. None: those of the job. Groups prefer ranks
        of one host.
    seed: of the random choices.
    name: for error messages.
    gpu: the number of the GPU in whose memory the models are, on all ranks; numbers may differ. None: host memory.

    If a rank dies, its group is given up and another one is formed of living ranks. If the rank that forms the groups
    dies, the next one takes over. Only "static" raises PeerDeadError. While Python computes, the background thread
    serves the other ranks; without it, calls of Dunlin do. It lasts until reform() or shutdown(); later calls raise
    ClosedError.
    """

    def average(self, model, iteration=None):
        """Averages `model` in place with one group, several or none, and returns it when the rank may compute again.

        model: `count` float32 elements, which are copied. After an error they are unchanged.
        iteration: the one that was computed; iterations increase. None: one more than the last one, from 0 on.

        Raises DeadlineExceededError after DUNLIN_DEADLINE; the average continues then. Raises InvalidArgumentError
        while the last average is in progress, if the iteration doesn't increase, and after leave().
        """
        return super().average(model, iteration)

    def start_average(self, model, iteration=None):
        """Starts average() and returns a Request at once. Until that is over, the model must not be used."""
        return super().start_average(model, iteration)

    def leave(self):
        """Takes this rank out of all later groups. To be called before shutdown(). Returns at once.

        The other ranks continue, and are served as long as the job lasts. Groups that wait for this rank are given up
        and formed again without it.
        """
        super().leave()

    def is_over(self):
        """Whether all living ranks have left. Always False with "static", which can't tell."""
        return super().is_over()

    def statistics(self):
        """A dictionary: "iterations"; "groups" that this rank averaged with, and the sum of their "members"; how often
        it continued "alone"; "failures" (groups that were given up); "bytes_sent", as by a ring for each group; seconds
        "waited"; and "server", the rank that forms the groups (None for "static")."""
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
    def source(self):
        """The source that was given to the constructor."""
        return super().source

    @property
    def gpu(self):
        """The number of the GPU that was given to the constructor, or None."""
        return super().gpu
