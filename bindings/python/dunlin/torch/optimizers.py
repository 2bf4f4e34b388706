"""Optimizers with which ranks train one model together. They wrap any optimizer of PyTorch.

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = dunlin.torch.DistributedAdaptWithCombineOptimizer(optimizer, model)

In these formulas, x are a rank's parameters, d is the step that the wrapped optimizer takes for a gradient, and W
averages with neighbors (or all ranks):

    adapt with combine   x <- W x + d(gradient at x)      the average overlaps with the forward and backward passes
    adapt then combine   x <- W (x + d(gradient at x))
    gradient all-reduce  x <- x + d(average gradient)     the averages overlap with the backward pass
    win-put              x <- W' x + d(gradient at x)     W' uses what neighbors have put so far, without waiting

A wrapped optimizer is an instance of the original class: schedulers, parameter groups and state_dict() work as before.
Small tensors are sent together, in buffers of a few MiB.
"""

import enum
import weakref

import torch

import dunlin
from dunlin.torch import _job, _operations, _windows

_BUFFER_BYTES = 8 << 20
# {the first model that was given: [the wrappers that DistributedOptimizer() has made for it and that have not left]}.
# It is empty for a model that is gone. Wrappers therefore must not refer to their models.
_wrapped = weakref.WeakKeyDictionary()


class CommunicationType(enum.Enum):
    """The average that a step applies to the parameters."""

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"


def DistributedAdaptWithCombineOptimizer(optimizer, model, communication_type=CommunicationType.neighbor_allreduce,
                                         num_steps_per_communication=1):
    """x <- W x + d(gradient at x): the average overlaps with the passes of the model.

    communication_type: an attribute that may be changed before each step, as may
        self_weight, src_weights, dst_weights                  of neighbor_allreduce
        self_weight, src_machine_weights, dst_machine_weights  of hierarchical_neighbor_allreduce
        enable_topo_check                                      of both; False by default
    num_steps_per_communication: the number of forward passes of the model per communication; other steps are local.
    """
    return _wrap(_AdaptWithCombine, optimizer, model, num_steps_per_communication,
                 communication_type=_checked(communication_type))


def DistributedAdaptThenCombineOptimizer(optimizer, model, communication_type=CommunicationType.neighbor_allreduce,
                                         num_steps_per_communication=1):
    """x <- W (x + d(gradient at x)). Arguments and attributes: as DistributedAdaptWithCombineOptimizer()."""
    return _wrap(_AdaptThenCombine, optimizer, model, num_steps_per_communication,
                 communication_type=_checked(communication_type))


def DistributedGradientAllreduceOptimizer(optimizer, model, num_steps_per_communication=1):
    """x <- x + d(gradient, averaged over all ranks): the same training as on one rank with all the data.

    num_steps_per_communication: the number of backward passes whose gradients are added up before they are averaged.
    """
    return _wrap(_GradientAllreduce, optimizer, model, num_steps_per_communication)


def DistributedWinPutOptimizer(optimizer, model, num_steps_per_communication=1, window_prefix=None):
    """x <- W' x + d(gradient at x), without waiting: x is put into the out-neighbors' windows, and averaged with the
    last puts of the in-neighbors.

    window_prefix: a prefix of the windows' names, which has to differ between models. dst_weights ({rank: weight}) is
    an attribute that may be set before each step, to put to some out-neighbors only. unregister_window() frees the
    windows; all ranks call it.
    """
    return _wrap(_WinPut, optimizer, model, num_steps_per_communication, window_prefix=window_prefix or "")


def DistributedNeighborAllreduceOptimizer(optimizer, model, num_steps_per_communication=1):
    """DistributedAdaptWithCombineOptimizer() with neighbor_allreduce."""
    return DistributedAdaptWithCombineOptimizer(optimizer, model, CommunicationType.neighbor_allreduce,
                                                num_steps_per_communication)


def DistributedHierarchicalNeighborAllreduceOptimizer(optimizer, model, num_steps_per_communication=1):
    """DistributedAdaptWithCombineOptimizer() with hierarchical_neighbor_allreduce."""
    return DistributedAdaptWithCombineOptimizer(
        optimizer, model, CommunicationType.hierarchical_neighbor_allreduce, num_steps_per_communication)


def DistributedAllreduceOptimizer(optimizer, model, num_steps_per_communication=1):
    """DistributedAdaptWithCombineOptimizer() with allreduce."""
    return DistributedAdaptWithCombineOptimizer(optimizer, model, CommunicationType.allreduce,
                                                num_steps_per_communication)


def _checked(communication_type):
    if not isinstance(communication_type, CommunicationType):
        raise ValueError(f"communication_type {communication_type!r} is not a CommunicationType")
    return communication_type


def _wrap(kind, optimizer, model, steps, **options):
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, _Distributed):
        raise ValueError("optimizer has to be a torch.optim.Optimizer that is not wrapped yet")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"num_steps_per_communication {steps!r}: it has to be an integer of at least 1")
    owner = type(f"Distributed{type(optimizer).__name__}", (kind, type(optimizer)), {})
    wrapped = owner.__new__(owner)
    # Both share their state, except for step(), which a scheduler may have replaced in the old one.
    wrapped.__dict__ = {name: value for name, value in optimizer.__dict__.items() if name != "step"}
    wrapped.set_up(_models(model), steps, **options)
    return wrapped


def _models(model):
    models = list(model) if isinstance(model, (list, tuple)) else [model]
    if not all(isinstance(each, torch.nn.Module) for each in models):
        raise ValueError("model has to be the torch.nn.Module whose parameters are optimized, or a list of them")
    return models


class _Buffer:
    """Parameters of one type that are sent together, and a flat tensor for them in host memory."""

    def __init__(self, parameters, dtype=None):
        self.parameters = parameters
        self.flat = torch.empty(sum(p.numel() for p in parameters), dtype=dtype or parameters[0].dtype)
        self.parts = [part.view(p.shape) for part, p in zip(self.flat.split([p.numel() for p in parameters]), parameters)]
        self.handle = None
        self.missing = len(parameters)

    @torch.no_grad()
    def gather(self, tensors):
        for part, tensor in zip(self.parts, tensors):
            part.copy_(tensor.cpu())

    @torch.no_grad()
    def scatter(self, tensors):
        for part, tensor in zip(self.parts, tensors):
            tensor.copy_(part)


def _buffers(parameters):
    """Buffers for the parameters, in their order, so that they are the same on all ranks."""
    buffers, open_ones = [], {}
    for parameter in parameters:
        group = open_ones.setdefault(parameter.dtype, [])
        group.append(parameter)
        if sum(p.numel() * p.element_size() for p in group) >= _BUFFER_BYTES:
            buffers.append(_Buffer(open_ones.pop(parameter.dtype)))
    return buffers + [_Buffer(group) for group in open_ones.values()]


class _Distributed:
    """The common part of all wrappers: parameters, their buffers, and when to communicate."""

    _made = 0

    def set_up(self, models, steps):
        _Distributed._made += 1
        self._key = f"optimizer {_Distributed._made}"
        self._steps = steps
        self._passes = 0  # since the last communication
        self._find_parameters(models)
        self._buffers = _buffers(self._trained)
        self._hooks = [models[0].register_forward_pre_hook(self._before_forward)]
        self._is_seen = False  # a forward pass since the last step

    def _find_parameters(self, models):
        """Sets _trained: the parameters of the models that the optimizer has, each once, in the models' order."""
        optimized = {id(p) for group in self.param_groups for p in group["params"]}
        parameters = list({id(p): p for model in models for p in model.parameters() if id(p) in optimized}.values())
        if not parameters:
            raise ValueError("the optimizer has no parameters of the model")
        for parameter in parameters:
            if parameter.device.type == "meta":
                raise ValueError("a parameter is on the meta device, where it has no elements")
        self._trained = [p for p in parameters if p.requires_grad]
        others = {id(p) for wrappers in _wrapped.values() for other in wrappers for p in other._trained}
        if not others.isdisjoint(map(id, self._trained)):
            raise ValueError("the model is wrapped by a DistributedOptimizer already, whose leave() was not called")

    def load_state_dict(self, state_dict):
        """As in the wrapped class. The loaded state is copied into the objects that schedulers of the wrapped optimizer
        share with this one, so that they use it.
        """
        groups, state = self.param_groups, self.state
        super().load_state_dict(state_dict)
        for group, loaded in zip(groups, self.param_groups):
            group.clear()
            group.update(loaded)
        loaded_state = dict(self.state)
        state.clear()
        state.update(loaded_state)
        self.param_groups, self.state = groups, state

    def _before_forward(self, model, inputs):
        if model.training and torch.is_grad_enabled():
            self._passes += 1
            self._is_seen = True
            self.on_forward()

    def on_forward(self):
        pass

    def _is_time(self):
        return self._passes >= self._steps

    def _is_time_to_step(self):
        # A program that doesn't call the model's forward() counts as one pass per step.
        if not self._is_seen:
            self._passes += 1
        self._is_seen = False
        return self._is_time()

    def _local_step(self, closure):
        return super().step(closure)

    def _unhook(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _older_name(name):
    return property(lambda self: getattr(self, name), lambda self, value: setattr(self, name, value))


class _Combining(_Distributed):
    """Averages of parameters."""

    # The names of these attributes before BlueFog 0.3. Programs that set them must not be ignored.
    neighbor_weights, send_neighbors = _older_name("src_weights"), _older_name("dst_weights")
    neighbor_machine_weights = _older_name("src_machine_weights")
    send_neighbor_machines = _older_name("dst_machine_weights")

    def set_up(self, models, steps, communication_type):
        super().set_up(models, steps)
        self.communication_type = communication_type
        self.self_weight = None
        self.src_weights = self.dst_weights = None
        self.src_machine_weights = self.dst_machine_weights = None
        self.enable_topo_check = False
        self._is_started = False

    def _start(self):
        self._drain()
        try:
            for number, buffer in enumerate(self._buffers):
                buffer.gather(buffer.parameters)
                buffer.handle = self._start_average(buffer.flat, f"{self._key}.{number}")
        except ValueError:
            # It is raised on all ranks, before anything of this buffer was sent.
            self._drain()
            raise
        self._is_started = True

    def _start_average(self, tensor, name):
        kind = _checked(self.communication_type)
        if kind is CommunicationType.allreduce:
            return _operations.allreduce_nonblocking_(tensor, True, name=name)
        if kind is CommunicationType.neighbor_allreduce:
            return _operations.neighbor_allreduce_nonblocking_(
                tensor, self_weight=self.self_weight, src_weights=self.src_weights, dst_weights=self.dst_weights,
                enable_topo_check=self.enable_topo_check, name=name)
        if kind is CommunicationType.hierarchical_neighbor_allreduce:
            return _operations.hierarchical_neighbor_allreduce_nonblocking_(
                tensor, self_weight=self.self_weight, src_machine_weights=self.src_machine_weights,
                dst_machine_weights=self.dst_machine_weights, enable_topo_check=self.enable_topo_check, name=name)
        return None

    def _drain(self):
        """Ends averages that are still in progress after an error."""
        for buffer in self._buffers:
            if buffer.handle is not None:
                _operations.synchronize(buffer.handle)
                buffer.handle = None

    def _finish(self):
        for buffer in self._buffers:
            if buffer.handle is not None:
                _operations.synchronize(buffer.handle)
                buffer.handle = None
                buffer.scatter(buffer.parameters)
        self._is_started = False
        self._passes = 0


class _AdaptWithCombine(_Combining):
    def on_forward(self):
        if self._is_time() and not self._is_started:
            self._start()

    def step(self, closure=None):
        if closure is not None:
            raise ValueError("step(closure) is not possible: the closure would use the model during an average")
        if self._is_time_to_step() and not self._is_started:
            self._start()
        if self._is_started:
            self._finish()
        return self._local_step(None)


class _AdaptThenCombine(_Combining):
    def step(self, closure=None):
        loss = self._local_step(closure)
        if self._is_time_to_step():
            self._start()
            self._finish()
        return loss


class _GradientAllreduce(_Distributed):
    def set_up(self, models, steps):
        super().set_up(models, steps)
        self._next = 0  # the next buffer to be sent: all ranks send them in the same order
        self._backward = {}  # {parameter: its backward passes since the last communication}
        self._nodes = []
        self._is_averaged = False
        for buffer in self._buffers:
            for parameter in buffer.parameters:
                self._watch(parameter, buffer)

    def _watch(self, parameter, buffer):
        def on_gradient(*_):
            passes = self._backward[parameter] = self._backward.get(parameter, 0) + 1
            if passes > self._steps:
                raise RuntimeError(f"more than {self._steps} backward passes before step(): the last gradients would "
                                   "be lost; set num_steps_per_communication")
            if passes == self._steps:
                buffer.missing -= 1
                self._send_ready()

        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(on_gradient))
        else:
            # The node that accumulates the gradient exists only while it is referred to.
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            self._hooks.append(node.register_hook(on_gradient))
            self._nodes.append(node)

    def _send_ready(self):
        # The gradients of the last layers are computed first.
        order = self._buffers[::-1]
        while self._next < len(order) and order[self._next].missing <= 0:
            self._send(order[self._next])
            self._next += 1

    def _send(self, buffer):
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in buffer.parameters]
        buffer.gather(gradients)
        buffer.handle = _operations.allreduce_nonblocking_(buffer.flat, True, name=self._key)

    def synchronize(self):
        """Waits for the averages, so that gradients can be clipped before step()."""
        self._average()
        self._is_averaged = True

    def _average(self):
        order = self._buffers[::-1]
        while self._next < len(order):
            self._send(order[self._next])
            self._next += 1
        failure = None
        for buffer in self._buffers:
            if buffer.handle is None:
                continue
            try:
                _operations.synchronize(buffer.handle)
            except (KeyboardInterrupt, dunlin.DeadlineExceededError):
                raise  # the average continues, and the next call waits for it again
            except dunlin.Error as error:
                failure = failure or error
            buffer.handle = None
        self._next = 0
        self._backward.clear()
        self._passes = 0
        for buffer in self._buffers:
            buffer.missing = len(buffer.parameters)
        if failure is not None:
            raise failure
        for buffer in self._buffers:
            for parameter in buffer.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            buffer.scatter([p.grad for p in buffer.parameters])

    def step(self, closure=None):
        if closure is not None:
            raise ValueError("step(closure) is not possible: the closure's gradients would not be averaged")
        is_time = self._is_time_to_step() or max(self._backward.values(), default=0) >= self._steps
        if is_time and not self._is_averaged:
            self._average()
        self._is_averaged = False
        return self._local_step(None)


class _WinPut(_Distributed):
    def set_up(self, models, steps, window_prefix):
        super().set_up(models, steps)
        self.dst_weights = None
        self.force_barrier = False
        self._is_put = False
        self._names = [f"{window_prefix}{self._key}.{number}" for number in range(len(self._buffers))]
        for buffer, name in zip(self._buffers, self._names):
            buffer.gather(buffer.parameters)
            if not _windows.win_create(buffer.flat, name):
                raise ValueError(f'there is a window "{name}" already: give another window_prefix')

    def on_forward(self):
        if self._is_time() and not self._is_put:
            self._put()

    def _put(self):
        self._is_put = True
        for buffer, name in zip(self._buffers, self._names):
            buffer.gather(buffer.parameters)
            _windows.win_put(buffer.flat, name, dst_weights=self.dst_weights)

    def step(self, closure=None):
        if closure is not None:
            raise ValueError("step(closure) is not possible: the closure would use the model during an average")
        if self._is_time_to_step():
            if not self._is_put:
                self._put()
            self._is_put = False
            if self.force_barrier:
                _operations.barrier()
            for buffer, name in zip(self._buffers, self._names):
                buffer.gather(buffer.parameters)
                _windows.win_update(name)
                buffer.scatter(buffer.parameters)
            self._passes = 0
        return self._local_step(None)

    def unregister_window(self):
        """Frees the windows; all ranks call it."""
        for name in self._names:
            _windows.win_free(name)
        self._names = []
