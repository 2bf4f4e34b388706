"""The common part of the methods of DistributedOptimizer: how one begins and ends, on all ranks or none."""

import numpy as np

import dunlin
from dunlin.torch import _job


def _agree(mistake):
    """Raises `mistake`, unless it is None. Collective: then all ranks raise an error, so that none waits for another."""
    try:
        own = 0 if mistake is None else dunlin.rank() + 1
        worst = int(dunlin.all_reduce(np.array([own], np.int64), "max", name="DistributedOptimizer")[0])
    except dunlin.Error:
        if mistake is None:
            raise
    if mistake is not None:
        raise mistake
    if worst > 0:
        raise ValueError(f"DistributedOptimizer() has failed at rank {worst - 1}, whose error says why")


class _Method:
    """What all methods have in common: how one begins."""

    may_freeze = False  # see _Distributed
    _last_barrier = None

    def set_up(self, models, steps, method, options):
        """The part that isn't collective. Everything that only one rank may find wrong is checked here."""
        self._method = method
        self._find_parameters(models)
        self.prepare(**options)

    def begin(self, models):
        """Nothing begins before all ranks know that none has made a mistake: see join()."""

    def join(self, models):
        """Collective."""
        self._gpu = _job.job().common_gpu({p.device for p in self._trained})
        self.make(models)
        super().begin(models)

    def _free_all(self, owners):
        """Calls free() of objects that all ranks have made. It can be called again after a timeout."""
        # free() is collective and can't be repeated. After the barrier, it doesn't wait.
        if self._last_barrier is None:
            self._last_barrier = dunlin.start_barrier()
        self._last_barrier.wait()
        for owner in owners:
            owner.free()

    def prepare(self, **options):
        """Reads the options."""
        raise NotImplementedError

    def make(self, models):
        """Makes what averages. Collective. self._gpu: where all ranks' parameters can be combined, or None."""
        raise NotImplementedError
