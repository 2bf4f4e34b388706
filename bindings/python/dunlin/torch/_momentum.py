"""SGD with momentum that is decentralized: DmSGD and QG-DmSGD. optimizers.py has their formulas and sources."""

import torch

from dunlin.torch._then_combine import _AdaptThenCombine

_MOMENTUM = "momentum_buffer"  # its key in the state of a torch.optim.SGD


class _MomentumSGD(_AdaptThenCombine):
    """Adapt then combine by SGD with momentum."""

    name = ""

    def set_up(self, models, steps, communication_type, **options):
        if not isinstance(self, torch.optim.SGD):
            raise ValueError(f"{self.name} is SGD with momentum: the optimizer has to be a torch.optim.SGD, not "
                             f"{type(self).__bases__[1].__name__}")
        self._check_options()
        super().set_up(models, steps, communication_type, **options)

    def _check_options(self):
        for number, group in enumerate(self.param_groups):
            if not 0 < group["momentum"] < 1:
                raise ValueError(f"{self.name} needs 0 < momentum < 1, which is {group['momentum']} in parameter group "
                                 f"{number}; SGD without momentum has DistributedAdaptThenCombineOptimizer()")
            if group["dampening"] != 0:
                raise ValueError(f"{self.name} has no dampening, which is {group['dampening']} in parameter group {number}")

    def before_adapt(self, buffers):
        self._check_options()

    def _momentum_of(self, parameter):
        momentum = self.state[parameter].get(_MOMENTUM)
        if momentum is None:
            momentum = self.state[parameter][_MOMENTUM] = torch.zeros_like(parameter, requires_grad=False)
        return momentum


class _DmSGD(_MomentumSGD):
    name = "DmSGD"
    buffer_options = {"copies": 2}

    def averaged(self, buffer):
        return buffer.parameters + [self._momentum_of(p) for p in buffer.parameters]


class _QGDmSGD(_MomentumSGD):
    name = "QG-DmSGD"

    def set_up(self, models, steps, communication_type, mu, **options):
        self.mu = mu
        self._before = {}  # {parameter: (its value, its momentum) before the step in progress}
        super().set_up(models, steps, communication_type, **options)

    def _check_options(self):
        super()._check_options()
        if self.mu is not None and not 0 <= self.mu < 1:
            raise ValueError(f"{self.name} needs 0 <= mu < 1, which is {self.mu!r}")

    @torch.no_grad()
    def before_adapt(self, buffers):
        super().before_adapt(buffers)
        for buffer in buffers:
            for parameter in buffer.parameters:
                # SGD overwrites its momentum.
                self._before[parameter] = parameter.detach().clone(), self._momentum_of(parameter).clone()

    @torch.no_grad()
    def after_combine(self, buffers):
        groups = {p: group for group in self.param_groups for p in group["params"]}
        for buffer in buffers:
            for parameter in buffer.parameters:
                value, momentum = self._before.pop(parameter)
                group = groups[parameter]
                rate = float(group["lr"])
                mu = group["momentum"] if self.mu is None else self.mu
                if rate != 0:
                    moved = (_widened(value) - _widened(parameter)) / rate
                    momentum.copy_(mu * _widened(momentum) + (1 - mu) * moved)
                self.state[parameter][_MOMENTUM] = momentum


def _widened(tensor):
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
