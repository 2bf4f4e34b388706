"""The IPython profile of a cluster: its folder, and the file that says who runs the cluster.

`start` holds a lock on the file while the cluster runs. The kernel releases the lock when the process ends, however it
ends. So a locked file means a running cluster, and a file without a lock means that its `start` was killed.
"""

import collections
import fcntl
import json
import os
import re
import socket
import time

from dunlin.errors import AlreadyExistsError, InvalidArgumentError, UnavailableError
from dunlin.interactive._requirements import ipyparallel  # noqa: F401
from IPython.core.profiledir import ProfileDir, ProfileDirError
from IPython.paths import get_ipython_dir

RunningCluster = collections.namedtuple("RunningCluster", "pid host ranks is_ready")

# A lock that somebody else holds for a moment, to see whether it is free, is not taken for a running cluster.
LOCK_ATTEMPTS = 20
LOCK_PAUSE = 0.1  # seconds


class Profile:
    """A profile by its name. It may not exist yet."""

    def __init__(self, name):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise InvalidArgumentError(f"{name!r} is no name of a profile: use letters, digits, '_', '.' and '-'",
                                       "invalid_argument")
        self.name = name
        self.folder = os.path.join(get_ipython_dir(), f"profile_{name}")
        self.cluster_file = os.path.join(self.folder, "security", "cluster-.json")  # written by ipyparallel
        self._path = os.path.join(self.folder, "security", "dunlin-interactive.json")
        self._fd = None

    def create(self):
        """Makes the folder, as IPython does, if it is missing. Nobody else may read it."""
        try:
            ProfileDir.find_profile_dir_by_name(get_ipython_dir(), self.name)
        except ProfileDirError:
            ProfileDir.create_profile_dir_by_name(get_ipython_dir(), self.name)
        os.chmod(self.folder, 0o700)

    def lock(self):
        """Makes this process the one that runs the cluster. Raises AlreadyExistsError if there is another one. Returns
        the process id of a former one that was killed, or None."""
        for _ in range(LOCK_ATTEMPTS):
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            if _is_locked_by_us(fd, self._path):
                self._fd = fd
                former = _parse(fd)
                os.ftruncate(fd, 0)
                return former.pid if former else None
            os.close(fd)
            time.sleep(LOCK_PAUSE)
        cluster = self.running_cluster()
        raise AlreadyExistsError(f"a cluster of {cluster.ranks} ranks runs in the profile {self.name!r} already "
                                 f"(process {cluster.pid} on {cluster.host})", "already_exists")

    def publish(self, ranks, is_ready):
        """Writes what others may know of the cluster."""
        text = json.dumps(RunningCluster(os.getpid(), socket.gethostname(), ranks, is_ready)._asdict()).encode()
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))

    def unlock(self):
        os.unlink(self._path)
        os.close(self._fd)
        self._fd = None

    def was_killed(self):
        """Whether a former `start` was killed, if no cluster runs."""
        return os.path.exists(self._path)

    def running_cluster(self):
        """Who runs the cluster. Raises UnavailableError if nobody does."""
        for _ in range(LOCK_ATTEMPTS):
            try:
                fd = os.open(self._path, os.O_RDWR)
            except FileNotFoundError:
                break
            try:
                if _is_locked_by_us(fd, self._path):
                    break
                if cluster := _parse(fd):
                    return cluster
            finally:
                os.close(fd)
            time.sleep(LOCK_PAUSE)  # it was locked and not written yet, or has just been removed
        raise UnavailableError(f"no cluster runs in the profile {self.name!r}: start one by `python3 -m "
                               f"dunlin.interactive start -n RANKS{self.option()}`", "unavailable")

    def option(self):
        """What selects this profile on a command line."""
        return "" if self.name == "dunlin" else f" --profile {self.name}"

    def clean(self, pid):
        """Removes what a cluster that was started by this process has left: connection files, and logs."""
        names = [("security", "ipcontroller-client.json"), ("security", "ipcontroller-engine.json"),
                 ("security", "cluster-.json"), ("log", "engines.json")]
        log = os.path.join(self.folder, "log")
        if os.path.isdir(log):
            pattern = rf"ip(controller|engine).*-{pid}\.log"
            names += [("log", name) for name in os.listdir(log) if re.fullmatch(pattern, name)]
        for folder, name in names:
            try:
                os.unlink(os.path.join(self.folder, folder, name))
            except FileNotFoundError:
                pass


def _is_locked_by_us(fd, path):
    """Takes the lock if it is free and the file is still the one of this path."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


def _parse(fd):
    """What is written in the file, or None if it is not complete."""
    try:
        return RunningCluster(**json.loads(os.pread(fd, 4096, 0)))
    except (ValueError, TypeError):
        return None
