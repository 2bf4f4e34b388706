"""What Dunlin's calls raise: one class per kind of failure, all of them `Error`."""


class Error(RuntimeError):
    """A call failed. The text says what, where and why.

    code: the kind of failure, as a word ("peer_dead", ...).
    peer: the rank that the failure concerns, or None.
    """

    def __init__(self, message="", code="internal", peer=None):
        super().__init__(message)
        self.code = code
        self.peer = peer


class InvalidArgumentError(Error, ValueError):
    """The caller's mistake: a value that can never work."""


class OutOfRangeError(Error, IndexError):
    """A rank, a node or an index beyond its bounds."""


class NotFoundError(Error, LookupError):
    """What was named does not exist."""


class AlreadyExistsError(Error):
    """It was made before."""


class PermissionDeniedError(Error):
    """A wrong job secret, or the kernel refused."""


class UnavailableError(Error):
    """Not on this machine, or not in this build."""


class DeadlineExceededError(Error, TimeoutError):
    """Peers stayed away for longer than the deadline; the text says which, and what for."""


class PeerStalledError(DeadlineExceededError):
    """The same, and one of them is known to be stopped."""


class PeerDeadError(Error, ConnectionError):
    """A peer's process or connection is gone."""


class ClosedError(Error):
    """What was used has been shut down or released, or was never initialized."""


class CorruptedError(Error):
    """A checksum, a format or a protocol is violated."""


class ResourceExhaustedError(Error):
    """Out of memory, or of something else that is limited."""


class IoError(Error):
    """The system failed."""


class InternalError(Error):
    """A bug in Dunlin."""


_BY_CODE = {
    "invalid_argument": InvalidArgumentError,
    "out_of_range": OutOfRangeError,
    "not_found": NotFoundError,
    "already_exists": AlreadyExistsError,
    "permission_denied": PermissionDeniedError,
    "unavailable": UnavailableError,
    "deadline_exceeded": DeadlineExceededError,
    "peer_dead": PeerDeadError,
    "peer_stalled": PeerStalledError,
    "closed": ClosedError,
    "corrupted": CorruptedError,
    "resource_exhausted": ResourceExhaustedError,
    "io_error": IoError,
    "internal": InternalError,
}


def of(code, message, peer):
    """The exception for a failure of the library's."""
    return _BY_CODE.get(code, InternalError)(message, code, peer)
