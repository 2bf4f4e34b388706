"""Adapt then combine: a step of the wrapped optimizer, and then an average with neighbors.

With overlap, gradient hooks do both for a buffer as soon as the backward pass has computed its gradients, and the average
runs while the pass computes those of earlier layers. step() does the rest, and waits. Each element is computed as without
overlap, and averages start in the same order. So the results are the same, bit by bit, unless an average's rounding depends
on how the elements are divided into buffers, as that of an all-reduce may.
"""

import functools
import logging
import sys

import torch

from dunlin.torch import _operations
from dunlin.torch._wrapper import _Combining

logger = logging.getLogger("dunlin")

# Their step for a parameter depends on that parameter's gradient and state alone, so it can be taken for some at a time.
_BY_PARAMETER = {getattr(torch.optim, name) for name in (
    "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")}


# Small buffers let averages begin early in the backward pass. Without overlap they would only cost time: 1.2 to 1.5 times as
# long an average as with those of 8 MiB (4 ranks on 2 cores, 16 to 32 MiB of parameters).
_OVERLAPPING_BYTES = 1 << 20


class _AdaptThenCombine(_Combining):
    def set_up(self, models, steps, communication_type, overlap=False):
        if overlap:
            self.buffer_bytes = _OVERLAPPING_BYTES
        super().set_up(models, steps, communication_type)
        self._order = self._buffers[::-1]  # the gradients of the last layers are computed first
        self._adapted = self._sent = 0  # how many buffers of the order, in this step
        self._final = {}  # {parameter: its gradient when that became final: (it, its version, in the trial a copy)}
        self._is_in_step = False
        self._has_failed = False  # the start of an average, in a hook
        self._is_trial = True
        self._obstacle = None
        self._is_watching = False
        self.overlap = overlap

    @property
    def overlap(self):
        """Whether averages overlap with backward passes, from the second step on. See why_no_overlap."""
        return self._overlap

    @overlap.setter
    def overlap(self, value):
        if not isinstance(value, bool):
            raise ValueError(f"overlap {value!r}: it has to be True or False")
        self._overlap = value
        if value and not self._is_watching:
            self._is_watching = True
            self._find_obstacles()
            self._watch_gradients()

    @property
    def why_no_overlap(self):
        """Why steps don't overlap although `overlap` is True: a text. None: they do."""
        return self._obstacle

    def _find_obstacles(self):
        wrapped = type(self).__bases__[1]
        if wrapped not in _BY_PARAMETER:
            self._give_up(f"the step of a {wrapped.__name__} can't be taken for some parameters at a time")
        elif any(group.get("differentiable") for group in self.param_groups):
            self._give_up("the optimizer is differentiable")
        elif self._has_step_hooks():
            self._give_up("the optimizer's step has hooks, which would run several times")

    @torch.enable_grad()
    def _watch_gradients(self):
        groups = {id(p): number for number, group in enumerate(self.param_groups) for p in group["params"]}
        for buffer in self._buffers:
            buffer.by_group = {}
            for parameter in buffer.parameters:
                buffer.by_group.setdefault(groups[id(parameter)], []).append(parameter)
                self._watch(parameter, functools.partial(self._on_gradient, parameter, buffer))

    def _has_step_hooks(self):
        module = sys.modules[torch.optim.Optimizer.__module__]
        return any(getattr(owner, name, None) for owner, name in (
            (self, "_optimizer_step_pre_hooks"), (self, "_optimizer_step_post_hooks"),
            (module, "_global_optimizer_pre_hooks"), (module, "_global_optimizer_post_hooks")))

    def _give_up(self, obstacle):
        self._obstacle = obstacle
        logger.warning("Adapt then combine does not overlap with the backward pass: %s.", obstacle)

    # The backward pass

    def _on_gradient(self, parameter, buffer):
        if not self._overlap or self._obstacle is not None or self._is_in_step or not self._is_time():
            return
        if not self._final and self._has_step_hooks():  # they have come since
            self._find_obstacles()
            return
        if parameter in self._final:
            if self._is_trial:
                self._give_up("there is more than one backward pass per step; set num_steps_per_communication")
                return
            raise RuntimeError("a gradient has changed after the step for it was taken in the backward pass: call step() "
                               "after each backward pass, set num_steps_per_communication, or set overlap to False")
        gradient = parameter.grad
        # The version doesn't tell that a GradScaler has changed it.
        value = gradient.detach().clone() if self._is_trial else None
        self._final[parameter] = gradient, gradient._version, value
        buffer.missing -= 1
        if not self._is_trial and not self._has_failed:
            self._combine_ready()

    def _combine_ready(self):
        try:
            while self._sent < len(self._order) and self._order[self._sent].missing == 0:
                buffer = self._order[self._sent]
                if self._adapted == self._sent:  # otherwise it was adapted, but could not be sent
                    self.before_adapt([buffer])
                    self._step_of(buffer.by_group.items())
                    self._adapted += 1
                self._send(buffer)
        except Exception:  # step() tries it again, and then raises it, as without overlap
            self._has_failed = True

    def _step_of(self, parts):
        """The wrapped optimizer's step for some parameters. parts: [(number of their group, parameters)]."""
        groups = self.param_groups
        self.param_groups = [{**groups[number], "params": parameters} for number, parameters in parts]
        try:
            self._local_step(None)
        finally:
            self.param_groups = groups

    def _send(self, buffer):
        if buffer.handle is not None:  # an average in progress after an error; its result is not used
            handle, buffer.handle = buffer.handle, None
            _operations.synchronize(handle)
        buffer.gather(self.averaged(buffer))
        buffer.handle = self._start_average(buffer.flat, f"{self._key}.{self._buffers.index(buffer)}")
        self._sent += 1

    # The step

    def step(self, closure=None):
        self._check_step()
        self._is_in_step = True
        adapted = []
        try:
            self._check_gradients(closure)
            rest = self._order[self._adapted:]
            self.before_adapt(rest)
            loss = self._adapt_rest(closure, rest)
            adapted = self._order
            if self._is_time_to_step():
                self._start()
                self._finish()
            return loss
        finally:
            self.after_combine(adapted or self._order[:self._adapted])
            self._begin_again()

    def _check_gradients(self, closure):
        """In the trial, finds what stands in the way of overlap. After it, RuntimeError for that."""
        if not self._overlap or self._obstacle is not None:
            return
        if closure is not None:
            obstacle = "step() has a closure, which computes the gradients"
        elif not self._is_seen:
            obstacle = "there was no forward pass of the model in training mode, by which passes are counted"
        elif any(_is_changed(p, *final) for p, final in self._final.items()):
            obstacle = "gradients are changed between the backward pass and step(), as by clipping or a GradScaler"
        elif getattr(self, "found_inf", None) is not None:  # for a fused optimizer
            obstacle = "a GradScaler leaves it to the optimizer's step to scale gradients"
        else:
            self._is_trial = self._is_trial and not self._final
            return
        if self._adapted == 0:
            self._give_up(obstacle)
            return
        raise RuntimeError(f"{obstacle}, but the backward pass has taken the step already: set overlap to False before it")

    def _adapt_rest(self, closure, rest):
        if self._adapted == 0:
            return self._local_step(closure)
        done = {id(p) for buffer in self._order[:self._adapted] for p in buffer.parameters}
        parts = [(number, [p for p in group["params"] if id(p) not in done])
                 for number, group in enumerate(self.param_groups)]
        if any(parameters for _, parameters in parts):
            self._step_of([part for part in parts if part[1]])
        return None

    def _start(self):
        try:
            for buffer in self._order[self._sent:]:
                self._send(buffer)
        except ValueError:
            # It is raised on all ranks, before anything of this buffer was sent.
            self._drain()
            raise

    def _begin_again(self):
        self._adapted = self._sent = 0
        self._final.clear()
        self._is_in_step = self._has_failed = False
        for buffer in self._buffers:
            buffer.missing = len(buffer.parameters)

    # What kinds of it add

    def before_adapt(self, buffers):
        """Comes before the local step of the buffers' parameters."""

    def after_combine(self, buffers):
        """Comes after the average, or in its place in a step without an average and when an average has failed."""


def _is_changed(parameter, gradient, version, value):
    now = parameter.grad
    if now is not gradient or now._version != version:
        return True
    return value is not None and not ((now == value) | ((now != now) & (value != value))).all()
