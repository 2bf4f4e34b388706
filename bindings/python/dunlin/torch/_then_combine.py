"""Adapt then combine: a step of the wrapped optimizer, and then an average with neighbors."""

from dunlin.torch._wrapper import _Combining


class _AdaptThenCombine(_Combining):
    def step(self, closure=None):
        self.before_adapt(self._buffers)
        loss = self._local_step(closure)
        try:
            if self._is_time_to_step():
                self._start()
                self._finish()
        finally:
            self.after_combine(self._buffers)
        return loss

    def before_adapt(self, buffers):
        """Comes before the local step of the buffers' parameters."""

    def after_combine(self, buffers):
        """Comes after the average, or in its place in a step without an average and when an average has failed."""
