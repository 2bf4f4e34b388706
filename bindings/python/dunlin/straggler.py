"""An all-reduce around a ring that does not wait for a late rank."""

import numpy as _numpy

from dunlin import _dunlin

__all__ = ["StragglerRing"]


class StragglerRing(_dunlin.StragglerRing):
    """Sums or averages a vector over all ranks, around a ring that does not wait for a late rank (Zhang et al., 2024).

        ring = dunlin.StragglerRing(gradient.size)
        for step in range(steps):
            ring.data[:] = gradient(model)
            model -= rate * ring.all_reduce()
        ring.free()

    A rank whose predecessor is late sends its own part alone, and forwards what arrives later. A rank that is late itself
    sends past its successor. Nothing is lost or counted twice, and all ranks get the same bits. Another run may round
    differently if a rank was late. The ring gains where a step is late now and then: at most one step and its transfer,
    a quarter of the reduce-scatter with four ranks. It gains nothing where all steps of a rank are slow.

    The constructor is collective over all ranks, with the same arguments; otherwise it raises InvalidArgumentError on
    all of them. All ranks make the same number of all-reduces.

    count: the number of elements.
    dtype: "float32" or "float64".
    average: whether the sum is divided by the number of ranks.
    late: which rank is late. T is the usual time of a rank's step (receive, reduce, send), and T_trans that of a
        transfer. A rank is late when its step took longer than alpha * T, and its successor waits for it for
        alpha * T + T_trans. "adaptive": each rank learns these times. "fixed": they are `step` and `transfer`. "never":
        no rank is late; this is the plain ring.
    step, transfer: seconds.
    alpha: above 1.
    name: for error messages.

    If a rank dies, the all-reduce in progress and all later ones raise PeerDeadError, which names it. While Python
    computes, the background thread advances all-reduces that were started; without it, calls of Dunlin do. It lasts
    until free() or shutdown(); later calls raise ClosedError, and `data` stays valid as long as it is referred to.
    """

    @property
    def data(self):
        """The vector, a NumPy array in registered memory, zeros at first. It is yours between all-reduces."""
        return super().data

    def all_reduce(self, x=None):
        """Reduces `data`, and returns it.

        x: an array of as many elements, which is copied to `data` before, and gets the result. It is returned then.

        Raises DeadlineExceededError after DUNLIN_DEADLINE, which names the rank that was waited for. After an error,
        `data` is undefined and x is unchanged.
        """
        if x is None:
            return super().all_reduce()
        flat = _numpy.asarray(x).reshape(-1)
        if flat.size != self.count:
            raise ValueError(f"x has {flat.size} elements, but the ring has {self.count}")
        self.data[:] = flat
        x[...] = super().all_reduce().reshape(x.shape)
        return x

    def start_all_reduce(self):
        """Begins to reduce `data`, which must not be touched until the Request that it returns is over."""
        return super().start_all_reduce()

    def statistics(self):
        """What this rank's all-reduces have done so far: a dictionary.

        all_reduces: those that have ended. timeouts: messages for which the predecessor was late. skips: messages that
        this rank sent past its successor, since it was late itself. skipped: messages that the predecessor sent past
        this rank. forwards: parts that arrived after this rank had sent its own. bytes_sent. took: seconds.
        """
        return super().statistics()

    def free(self):
        """Releases the ring when all ranks have called it. Collective. Raises InvalidArgumentError while an all-reduce
        is in progress at a rank."""
        super().free()
