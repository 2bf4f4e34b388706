"""Environment variables of a job, for programs that read them."""

import contextlib
import os

# The variables in which launchers give a process its rank and the number of ranks.
_LAUNCHERS = (("DUNLIN_RANK", "DUNLIN_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
              ("PMI_RANK", "PMI_SIZE"), ("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


@contextlib.contextmanager
def env(**variables):
    """Sets environment variables for the body of a `with` statement. None removes a variable.

        with env(BLUEFOG_TIMELINE="timeline "):
            dunlin.torch.init()
    """
    before = {name: os.environ.get(name) for name in variables}
    try:
        for name, value in variables.items():
            _set(name, value)
        yield
    finally:
        for name, value in before.items():
            _set(name, value)


def mpi_env_rank_and_size():
    """(rank, size) that the launcher gave this process, without init(); (0, 1) without a launcher."""
    for rank, size in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def _set(name, value):
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = str(value)
