"""Operations of one rank in which the others take no part: windows for deposits of neighbors, and a mutex."""

import time

from dunlin import _dunlin, _survivors
from dunlin.errors import PeerDeadError

__all__ = ["Mutex", "Window"]


class Window(_dunlin.Window):
    """A tensor on every rank, and at each out-neighbor a buffer for this rank's deposits.

    The constructor is collective over all ranks, with x of the same size and type, float32 or float64. It raises
    InvalidArgumentError on all ranks if their neighbors don't match. The tensor begins as a copy of x. So do the
    buffers, or as zeros with `zero_init`.

    x may be in the memory of a GPU, at all ranks or at none. Then the window is there, too, and so are `tensor`,
    buffers and results, as GpuArrays. Your work on the tensor has to be complete before a call (synchronize your
    stream), and the window's work is complete when a call returns. Ranks of a host on the same GPU deposit without a
    pass through host memory, and get() reads from them only.

    sources: the ranks that deposit here: {rank: its weight in update()}, or ranks.
    destinations: the ranks where this rank deposits.

    Every operation is applied to a scalar p as well, with the same weights. It is 1 at first. If each sender's weights
    add up to 1, the tensor divided by p converges to the average of all ranks (push-sum).

    No operation waits for another rank except flush(), free() and the constructor. Deposits for which a neighbor has no
    room yet are merged here, and the background thread sends them. The neighbor's background thread takes them into its
    buffer. No deposit is lost or counted twice.

    A window lasts until free() or shutdown(), also if it is no longer referred to. After that, calls raise ClosedError;
    `tensor` stays valid as long as it is referred to.

    With init(on_peer_loss="continue"), a window goes on without neighbors that have died:
        put()         leaves dead destinations out
        accumulate()  leaves dead destinations out, and adds their weights to self_weight, so that a sender's weights
                      still add up to what they did
        get()         leaves dead sources out
        update()      uses the tensor itself in the place of a dead source's buffer, with that weight. With reset=True and
                      in update_then_collect(), what a dead source has deposited counts as it is, once.
        flush(), free()  don't wait for dead ranks, and don't raise PeerDeadError
    p goes through the same.
    """

    def __init__(self, x, sources, destinations, name="window", zero_init=False):
        super().__init__(x, sources, destinations, name, zero_init)
        # The weights of an update() without others.
        self._uniform = 1 / (len(self.sources) + 1)
        self._weights = dict(sources) if isinstance(sources, dict) else dict.fromkeys(self.sources, self._uniform)

    @property
    def tensor(self):
        """This rank's tensor, in the window's memory: a NumPy array (or GpuArray) of x's shape, which may be changed at
        any time between calls. get() of other ranks reads it as of the last put(), accumulate(), update() or publish().
        """
        return super().tensor

    @property
    def p(self):
        """The scalar to which the operations on the tensor are applied as well (push-sum)."""
        return super().p

    @p.setter
    def p(self, value):
        _dunlin.Window.p.__set__(self, value)

    @property
    def name(self):
        """The name that was given to the constructor."""
        return super().name

    @property
    def sources(self):
        """The ranks that deposit here, in the order in which they were given."""
        return super().sources

    @property
    def destinations(self):
        """The ranks where this rank deposits."""
        return super().destinations

    def put(self, destinations=None, self_weight=1.0):
        """Replaces the contents of the buffers at `destinations` with weight * tensor; then tensor *= self_weight.

        destinations: {rank: weight}, or ranks, whose weights are 1; None: all out-neighbors. Returns at once; then the
        tensor may be changed. Raises PeerDeadError, and does nothing, if a destination is dead.
        """
        if not _survivors.goes_on():
            return super().put(destinations, self_weight)
        self._among_living(destinations, self.destinations, lambda living, _: super(Window, self).put(living, self_weight))

    def accumulate(self, destinations=None, self_weight=1.0):
        """As put(), but adds weight * tensor to the contents of the buffers."""
        if not _survivors.goes_on():
            return super().accumulate(destinations, self_weight)
        self._among_living(destinations, self.destinations,
                           lambda living, lost: super(Window, self).accumulate(living, self_weight + sum(lost.values())))

    @staticmethod
    def _among_living(ranks, default, call):
        """Calls `call` with {rank: weight} of the living ranks and of the dead ones. It does nothing if it raises
        PeerDeadError, since one has died meanwhile; then it is called again.
        """
        given = default if ranks is None else ranks
        weights = dict(given) if isinstance(given, dict) else dict.fromkeys(given, 1.0)
        named = set()  # by an error: a lane may know of an end before the job does
        while True:
            lost = {rank: weight for rank, weight in weights.items() if rank in named or _survivors.is_gone(rank)}
            try:
                return call({rank: weight for rank, weight in weights.items() if rank not in lost}, lost)
            except PeerDeadError as death:
                if death.peer not in weights or death.peer in lost:
                    raise
                named.add(death.peer)

    def flush(self, timeout=None):
        """Waits until the destinations have taken all deposits into their buffers.

        timeout: seconds; None: DUNLIN_DEADLINE. The death of a destination is reported once.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return super().flush(timeout if until is None else max(until - time.monotonic(), 0))
            except PeerDeadError:
                if not _survivors.goes_on():
                    raise  # otherwise, the other destinations are waited for

    def publish(self):
        """Makes the current tensor and p visible to get() of other ranks."""
        super().publish()

    def get(self, sources=None, timeout=None):
        """Replaces the buffer of each source with weight * the tensor that it has published last, as its put() would.

        sources: {rank: weight}, or ranks, whose weights are 1; None: all in-neighbors. The sources take no part; over
        UCX, their background threads answer.
        """
        if not _survivors.goes_on():
            return super().get(sources, timeout)
        self._among_living(sources, self.sources, lambda living, _: super(Window, self).get(living, timeout))

    def update(self, self_weight=None, sources=None, reset=False, out=None):
        """Sets the tensor to self_weight * tensor + the sum of weight * buffer, and p likewise.

        sources: {rank: weight}, or ranks, whose weights are 1; other buffers are not used. None: all in-neighbors, with
            the window's weights, or 1 / (in-degree + 1) if it has none.
        self_weight: None: 1 / (in-degree + 1).
        reset: sets the buffers that were used to zero. Deposits that arrive meanwhile are not lost.
        out: an array of as many elements, apart from the tensor, that gets the result. Tensor and p stay unchanged
            then.

        Returns the array with the result.
        """
        if sources is not None and not isinstance(sources, dict):
            sources = list(sources)
        lost = [] if reset or not _survivors.goes_on() else list(filter(
            _survivors.is_gone, self.sources if sources is None else sources))
        if lost:
            self_weight = self._uniform if self_weight is None else self_weight
            weights = self._weights if sources is None else sources
            weights = dict(weights) if isinstance(weights, dict) else dict.fromkeys(weights, 1.0)
            self_weight += sum(weights.pop(rank) for rank in lost)
            sources = weights
        return super().update(self_weight, sources, reset, out)

    def update_then_collect(self):
        """Adds all buffers to the tensor, and sets them to zero."""
        return super().update_then_collect()

    def versions(self):
        """{in-neighbor: the number of deposits in its buffer since the last update() that used it}."""
        return super().versions()

    def buffer(self, rank):
        """A copy of the buffer of an in-neighbor (on a GPU: a GpuArray)."""
        return super().buffer(rank)

    def buffer_p(self, rank):
        """The p of the buffer of an in-neighbor."""
        return super().buffer_p(rank)

    def free(self):
        """Frees the window. Collective: waits until all deposits were taken in and all ranks have called it."""
        try:
            super().free()
        except PeerDeadError:  # it is freed all the same
            if not _survivors.goes_on():
                raise


class Mutex(_dunlin.Mutex):
    """Mutual exclusion among all ranks. Ranks get it in the order of their requests. The constructor is collective.

    owner_rank: the rank whose memory holds the mutex. It takes no part when other ranks lock and unlock, or its
    background thread answers. If it dies, the mutex can't be used any more. The mutex excludes ranks, not the threads
    of a rank. It doesn't order other operations: to make deposits visible, flush() the window before unlock().

        with mutex:
            ...
    """

    @property
    def name(self):
        """The name that was given to the constructor."""
        return super().name

    def lock(self, timeout=None):
        """Waits until this rank holds the mutex. Returns True if the last holder died, so that the data that the mutex
        protects may be inconsistent.

        timeout: seconds; None: DUNLIN_DEADLINE. After DeadlineExceededError or Ctrl-C the mutex is not locked.
        """
        return super().lock(timeout)

    def unlock(self):
        """Releases the mutex."""
        super().unlock()

    def free(self):
        """Frees the mutex. Collective. Raises InvalidArgumentError if a rank holds it.

        Raises PeerDeadError if a rank is dead. The mutex is freed on this rank then, without waiting for other ranks.
        Survivors that lock it still need its owner rank.
        """
        super().free()

    def __enter__(self):
        return self.lock()

    def __exit__(self, *_):
        self.unlock()
