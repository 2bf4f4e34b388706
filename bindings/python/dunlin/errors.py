"""The exceptions that Dunlin's calls raise: one class per kind of failure, all derived from `Error`."""


class Error(RuntimeError):
    """A call failed. The text says which, where and why.

    code: the kind of failure as a word ("peer_dead", ...).
    peer: the rank that the failure concerns, or None.
    """

    def __init__(self, message="", code="internal", peer=None):
        super().__init__(message)
        self.code = code
        self.peer = peer


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong."""


class OutOfRangeError(Error, IndexError):
    """A rank, a node or an index is out of bounds."""


class NotFoundError(Error, LookupError):
    """Something that was named does not exist."""


class AlreadyExistsError(Error):
    """Something of this name exists already."""


class PermissionDeniedError(Error):
    """The job secret is wrong, or the kernel refused an operation."""


class UnavailableError(Error):
    """The feature is missing on this host or in this build."""


class DeadlineExceededError(Error, TimeoutError):
    """Peers did not arrive by the deadline. The text says which peers, and what was waited for."""


class PeerStalledError(DeadlineExceededError):
    """Peers did not arrive by the deadline, and one of them is known to be stopped."""


class PeerDeadError(Error, ConnectionError):
    """A peer's process has ended, or its connection is broken."""


class ClosedError(Error):
    """The object was shut down or released, or Dunlin was never initialized."""


class CorruptedError(Error):
    """A checksum, a format or a protocol is violated."""


class ResourceExhaustedError(Error):
    """Memory or another limited resource is exhausted."""


class IoError(Error):
    """A system call failed."""


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
    """The exception for an error code of the library."""
    return _BY_CODE.get(code, InternalError)(message, code, peer)
