"""The engine of one rank."""

import os
import sys

from dunlin.interactive._requirements import ipyparallel  # noqa: F401

# The rank that a launcher gives to a process: dunlin-run, torchrun, mpirun, srun.
RANK_VARIABLES = ("DUNLIN_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
# Seconds that the controller has to answer. Many engines that start at once on few cores need longer than the default.
REGISTRATION_TIMEOUT = 120


def run_engine(arguments):
    """Runs until the cluster ends, or a client shuts the engine down. `arguments` are those of ipengine. Returns an
    exit code."""
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
    if rank is None:
        print("dunlin.interactive: an engine needs a rank: run it by dunlin-run, torchrun, mpirun or srun",
              file=sys.stderr)
        return 2
    from ipyparallel.engine.app import IPEngine
    engine = IPEngine.instance()
    engine.initialize([f"--IPEngine.id={rank}", f"--IPEngine.timeout={REGISTRATION_TIMEOUT}", *arguments])
    try:
        engine.start()
    except RuntimeError:
        # With ipykernel 7, a client's request to shut down stops the event loop that the engine waits in.
        if engine.kernel is None or not engine.kernel.shell.exit_now:
            raise
    return 0
