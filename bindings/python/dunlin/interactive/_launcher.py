"""How ipyparallel starts the engines of a cluster: as the ranks of one Dunlin job, by one dunlin-run."""

import os
import shutil
import sys

from dunlin.interactive._requirements import ipyparallel  # noqa: F401
from ipyparallel.cluster.launcher import LocalEngineLauncher
from traitlets import Integer, List, Unicode


def find_dunlin_run():
    """The dunlin-run that was installed with this interpreter, as by pip in a virtual environment that is not
    activated, or the one that a shell would run. Raises FileNotFoundError."""
    beside = os.path.join(os.path.dirname(sys.executable), "dunlin-run")
    found = shutil.which(beside) or shutil.which("dunlin-run")
    if found is None:
        raise FileNotFoundError(f"dunlin-run is neither in {os.path.dirname(sys.executable)} nor in a folder of PATH")
    return os.path.abspath(found)


class EngineLauncher(LocalEngineLauncher):
    """Starts n engines on this host as the ranks of a job. When one dies, the others continue, so that their variables
    can still be read; their Dunlin calls that need the dead rank raise PeerDeadError."""

    dunlin_run_args = List(Unicode(), config=True, help="options of dunlin-run, such as ['--bind', 'none']")
    # Warnings only: the log of every call would grow as long as the cluster runs.
    engine_args = List(Unicode(), ["--log-level=30"], config=True, help="options of ipengine")
    # dunlin-run ends ranks that do not end by themselves. It needs more time for that than a single engine.
    stop_seconds_until_kill = Integer(20, config=True,
                                      help="seconds that dunlin-run has after SIGTERM, until it gets SIGKILL")

    def find_args(self):
        return [find_dunlin_run(), "-n", str(self.n), "--keep-going", *self.dunlin_run_args, "--", sys.executable, "-m",
                "dunlin.interactive", "engine", *self.cluster_args, *self.engine_args]

    def start(self, n):
        self.n = n
        return super().start()
