"""The common part of the methods of DistributedOptimizer: how one begins and ends, on all ranks or none."""

import numpy as np

import dunlin
from dunlin.torch import _job
from dunlin.torch._wrapper import _wrapped


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
    """What all methods have in common: when one begins and ends, and what must not change meanwhile."""

    def set_up(self, models, steps, method, options):
        """The part that isn't collective. Everything that only one rank may find wrong is checked here."""
        self._method = method
        self._find_parameters(models)
        self._has_left = False
        self._hooks = []
        self._trainable = self._trainable_now()
        self.prepare(**options)

    def join(self, models):
        """Collective."""
        self._gpu = _job.job().common_gpu({p.device for p in self._trained})
        self.make(models)
        _wrapped.setdefault(models[0], []).append(self)

    def prepare(self, **options):
        """Reads the options."""
        raise NotImplementedError

    def make(self, models):
        """Makes what averages. Collective. self._gpu: where all ranks' parameters can be combined, or None."""
        raise NotImplementedError

    def _trainable_now(self):
        return {id(p): p for group in self.param_groups for p in group["params"] if p.requires_grad}

    def _check_step(self):
        if self._has_left:
            raise RuntimeError("step() after leave()")
        now = self._trainable_now()
        if now.keys() != self._trainable.keys():
            more = [p for key, p in now.items() if key not in self._trainable]
            less = [p for key, p in self._trainable.items() if key not in now]
            changes = [f"{len(those)} {what}, with the shapes {', '.join(str(tuple(p.shape)) for p in those)}"
                       for those, what in ((more, "have been added or need gradients now"),
                                           (less, "have been removed or need no gradient now")) if those]
            raise ValueError(f"{self._method!r}: the optimizer's parameters have changed since it was wrapped: "
                             f"{'; '.join(changes)}. Call leave() on all ranks, and wrap a new optimizer")

    def leave(self):
        """Takes this rank out, after the average in progress. Does nothing if it was called before.

        After DeadlineExceededError and Ctrl-C this rank is still leaving: call it again. After any other error it has
        left.
        """
        if self._has_left:
            return
        try:
            self.end()
        except (KeyboardInterrupt, dunlin.DeadlineExceededError):
            raise
        except BaseException:
            self._forget()
            raise
        self._forget()

    def end(self):
        """Waits for the end of what is in progress. It is called again after a timeout."""
        raise NotImplementedError

    def _forget(self):
        self._has_left = True
        self._unhook()
        for wrappers in _wrapped.values():
            if self in wrappers:
                wrappers.remove(self)
