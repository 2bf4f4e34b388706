"""What one rank does without the others taking part: windows for deposits of neighbors, and a mutex."""

from dunlin import _dunlin

__all__ = ["Mutex", "Window"]


class Window(_dunlin.Window):
    """A tensor on every rank, and a buffer at each out-neighbor for what this rank deposits with it.

    Collective over all ranks, with x of the same size and type, float32 or float64; neighbors that don't match are an
    InvalidArgumentError on all ranks. The tensor begins as a copy of x, and so do the buffers, unless `zero_init`:
    then they begin as zeros.

    sources: {rank: weight that update() gives it}, or ranks; those who deposit here.
    destinations: those with whom this rank deposits.

    Everything is done for a scalar p as well, which is 1 at first, with the same weights: divided by it, what came of
    weights that add up to 1 at each sender is the average of all ranks (push-sum).

    Nobody waits for anybody but in flush(), free() and the constructor. What a neighbor has no room for yet is merged
    here and sent by the background thread; what comes is taken into its buffer by that thread there. Nothing is lost
    or counted twice.

    A window lasts until free() or shutdown(), also when it is dropped. `tensor` stays valid for as long as anybody has
    it; everything else raises ClosedError then.
    """

    @property
    def tensor(self):
        """This rank's tensor, in the window's memory: a NumPy array of x's shape, to be changed at any time between
        calls. What get() of others reads is what it was at the last put(), accumulate(), update() or publish()."""
        return super().tensor

    @property
    def p(self):
        """The scalar that goes the way of the tensor."""
        return super().p

    @p.setter
    def p(self, value):
        _dunlin.Window.p.__set__(self, value)

    @property
    def name(self):
        """As it was given."""
        return super().name

    @property
    def sources(self):
        """Those who deposit here, in the order in which they were given."""
        return super().sources

    @property
    def destinations(self):
        """Those with whom this rank deposits."""
        return super().destinations

    def put(self, destinations=None, self_weight=1.0):
        """Replaces what the buffers at `destinations` hold by weight * tensor; then tensor *= self_weight.

        destinations: {rank: weight}, or ranks, whose weights are 1; None: all out-neighbors. Returns at once; the
        tensor may be changed. PeerDeadError where one is gone; then nothing was done.
        """
        super().put(destinations, self_weight)

    def accumulate(self, destinations=None, self_weight=1.0):
        """As put(), with weight * tensor added to what the buffers hold."""
        super().accumulate(destinations, self_weight)

    def flush(self, timeout=None):
        """Waits until the destinations' processes have taken over all that was deposited.

        timeout: seconds; None: DUNLIN_DEADLINE. A loss by a death is reported once.
        """
        super().flush(timeout)

    def publish(self):
        """Makes the tensor and p what others' get() reads from now on."""
        super().publish()

    def get(self, sources=None, timeout=None):
        """Makes the buffers of `sources` weight * what each of them has published last, as a put by it would.

        sources: {rank: weight}, or ranks, whose weights are 1; None: all in-neighbors. They take no part
        (over UCX, the background thread of their runtime answers).
        """
        super().get(sources, timeout)

    def update(self, self_weight=None, sources=None, reset=False, out=None):
        """self_weight * tensor + the sum of weight * buffer, and the same for p: the new tensor and p, or in `out`.

        sources: {rank: weight}, or ranks, whose weights are 1; others are left alone. None: all in-neighbors with the
            window's weights; with 1 / (in-degree + 1), where it has none.
        self_weight: None: 1 / (in-degree + 1).
        reset: the buffers that were used are zero afterwards; nothing that comes meanwhile is lost.
        out: an array of as many elements apart from the tensor; tensor and p then stay as they are.

        Returns the array with the result.
        """
        return super().update(self_weight, sources, reset, out)

    def update_then_collect(self):
        """Adds all buffers to the tensor, and empties them."""
        return super().update_then_collect()

    def versions(self):
        """{in-neighbor: deposits in its buffer since the last update() with it}."""
        return super().versions()

    def buffer(self, rank):
        """A copy of what an in-neighbor has deposited here."""
        return super().buffer(rank)

    def buffer_p(self, rank):
        """The p of what an in-neighbor has deposited here."""
        return super().buffer_p(rank)

    def free(self):
        """Ends the window. Collective: waits until all that was deposited is taken over and all ranks have come."""
        super().free()


class Mutex(_dunlin.Mutex):
    """Mutual exclusion among all ranks; collective. First come, first served.

    home: the rank whose memory it is in. Others lock and unlock without its taking part, or have its background thread
    answer. When the home is gone, the mutex is, too. It excludes ranks, not the threads of one. It orders nothing but
    itself: flush() a window before unlock(), where others are to see what was deposited.

        with mutex:
            ...
    """

    @property
    def name(self):
        """As it was given."""
        return super().name

    def lock(self, timeout=None):
        """Waits until this rank holds it. True: the former owner died, and what the mutex protects may be half done.

        timeout: seconds; None: DUNLIN_DEADLINE. After DeadlineExceededError, or Ctrl-C, it is not locked.
        """
        return super().lock(timeout)

    def unlock(self):
        """Lets others have it."""
        super().unlock()

    def free(self):
        """Ends the mutex. Collective; InvalidArgumentError where a rank holds it.

        PeerDeadError where a rank is dead: it has ended here, and nobody was waited for. Survivors who want to lock it
        still need its home.
        """
        super().free()

    def __enter__(self):
        return self.lock()

    def __exit__(self, *_):
        self.unlock()
