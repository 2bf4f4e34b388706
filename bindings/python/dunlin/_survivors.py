"""What operations do about ranks that die: init(on_peer_loss=...)."""

import time

from dunlin import _dunlin, errors

RAISE, CONTINUE = "raise", "continue"
# What an average does about dead neighbors, beside RAISE (collectives/neighbor/call.h).
OWN_DATA, OWN_SHARE = "own data", "own share"

_goes_on = False


def choose(on_peer_loss, is_in_job):
    """Notes how this process's job takes deaths. None: as it is, or "raise" in a new job."""
    global _goes_on
    if on_peer_loss not in (None, RAISE, CONTINUE):
        raise errors.of("invalid_argument", f'on_peer_loss is {on_peer_loss!r}, not "{RAISE}" or "{CONTINUE}"', None)
    wanted = _goes_on and is_in_job if on_peer_loss is None else on_peer_loss == CONTINUE
    if is_in_job and wanted != _goes_on:
        raise errors.of("invalid_argument", f'on_peer_loss is "{on_peer_loss}", but the job has begun with another one', None)
    _goes_on = wanted


def forget():
    """The job has ended."""
    global _goes_on
    _goes_on = False


def goes_on():
    """Whether operations with neighbors go on without ranks that have died."""
    return _goes_on


def is_gone(rank):
    """Whether operations go on without this rank, as far as this process knows."""
    return _goes_on and _dunlin.is_gone(rank)


def refuse(what):
    """Raises UnavailableError if the job is to survive deaths, which `what` can't."""
    if _goes_on:
        raise errors.of("unavailable", f'{what}: it does not survive a death, but init() has on_peer_loss="continue"', None)


def _has_weights(ranks):
    return isinstance(ranks, dict) and any(weight != 1 for weight in ranks.values())


def on_death(sources, destinations):
    """What an average of dunlin.neighbor_average() does when a neighbor is dead, by where its weights are."""
    if not _goes_on:
        return RAISE
    if not isinstance(destinations, dict):
        return OWN_DATA
    if not _has_weights(sources):
        return OWN_SHARE
    if not _has_weights(destinations):
        return OWN_DATA
    raise errors.of("invalid_argument", 'sources and destinations both have weights. With on_peer_loss="continue", give '
                    "weights to one side, so that it is known which sum stays the same after a death", None)


class Gathering:
    """The request of a gather that goes on without dead neighbors: its result has None in a dead source's place.

    Every source has an operation of its own, so that the end of one does not end the others.
    """

    def __init__(self, x, sources, destinations, name):
        self._x = x
        self._sending = self._started([], [rank for rank in destinations or [] if not _dunlin.is_gone(rank)], name)
        self._parts = [self._started([source], [], name) for source in sources or []]
        self._result = [None] * len(self._parts)

    def _started(self, sources, destinations, name):
        try:
            return _dunlin.start_neighbor_gather(self._x, sources, destinations, name)
        except errors.PeerDeadError:
            return None

    def test(self):
        """As Request.test()."""
        return all([self._is_over(request) for request in [self._sending, *self._parts]])

    @staticmethod
    def _is_over(request):
        try:
            return request is None or request.test()
        except errors.PeerDeadError:
            return True

    def wait(self, timeout=None):
        """As Request.wait()."""
        until = None if timeout is None else time.monotonic() + timeout

        def wait_for(request):
            left = None if until is None else max(until - time.monotonic(), 0)
            try:
                return request.wait() if left is None else request.wait(left)
            except errors.PeerDeadError:
                return None

        for number, request in enumerate(self._parts):
            if request is not None:
                part = wait_for(request)
                self._result[number] = None if part is None else part[0]
                self._parts[number] = None
        if self._sending is not None:
            # Data for its living destinations are sent all the same.
            wait_for(self._sending)
            self._sending = None
        self._x = None
        return self._result
