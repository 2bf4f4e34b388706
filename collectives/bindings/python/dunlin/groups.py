"""Training whose workers average their models in groups that are formed as they come (Ripples / Prague)."""

from dunlin import _dunlin

__all__ = ["GroupAverage"]


class GroupAverage(_dunlin.GroupAverage):
    """A worker's synchronization by groups: after each iteration, its model is averaged with a few others'.

        groups = dunlin.GroupAverage(model.size)
        for step in range(steps):
            model -= rate * gradient(model)
            groups.average(model)
        groups.leave()

    Collective over all ranks, with the same arguments; else InvalidArgumentError on all of them. Afterwards ranks go
    each at its own pace: groups are formed of those who ask, so that a slow rank holds up few.

    count: float32 elements of a model.
    source: who forms groups. "smart": the lowest rank, of those who wait, none of them far behind; "random" and
        "buffered": the same, by lot; "static": a schedule that all know, for ranks of equal speed.
    group_size: at most so many are in a group, or all ranks where they are less.
    slowdown_threshold: a rank is in no group with those that are so many iterations behind it ("smart").
    layout: (nodes, ranks per node), ranks being numbered node by node; None: the hosts. Groups prefer neighbors.
    seed: of what is drawn by lot.
    name: for messages.

    Deaths are survived: the group is given up, another one formed of those who live, and where the rank that forms
    them has died, the next one does. Only "static" ends with PeerDeadError. The background thread serves the others
    while Python computes; without it, calls of Dunlin do. It lasts until shutdown(); then all raises ClosedError.
    """

    def average(self, model, iteration=None):
        """Averages `model` in place with a group or more, or with nobody, and returns it when the rank may compute on.

        model: `count` float32 elements, which are copied. After an error they are what they were.
        iteration: which one was computed; goes up. None: one more than the last, from 0 on.

        The wait ends with DeadlineExceededError after DUNLIN_DEADLINE, the average goes on. InvalidArgumentError:
        before the last has ended, out of order, or after leave().
        """
        return super().average(model, iteration)

    def start_average(self, model, iteration=None):
        """average() that returns a Request at once. Until it is over, the model belongs to it."""
        return super().start_average(model, iteration)

    def leave(self):
        """This rank is in no more groups. Returns at once; the others go on, and are served as long as the job lasts.

        What others wait for with this rank is broken, and formed anew without it. To be called before shutdown().
        """
        super().leave()

    def is_over(self):
        """Whether all ranks that are still there have left. Of "static", which nobody leaves: False."""
        return super().is_over()

    def statistics(self):
        """What has been done: a dictionary of "iterations"; "groups" averaged with, and their "members" in all; how
        often this rank went on "alone"; "failures", groups that were given up; seconds "waited"; and "server", the
        rank that forms groups, None for "static"."""
        return super().statistics()

    @property
    def name(self):
        """As it was given."""
        return super().name

    @property
    def count(self):
        """The elements of a model."""
        return super().count

    @property
    def source(self):
        """As it was given."""
        return super().source
