"""What the wrappers of optimizers have in common: parameters, their buffers, when to communicate, and which average."""

import enum
import weakref

import torch

from dunlin.torch import _operations

# {the first model that was given: [the wrappers that DistributedOptimizer() has made for it and that have not left]}.
# It is empty for a model that is gone. Wrappers therefore must not refer to their models.
_wrapped = weakref.WeakKeyDictionary()


class CommunicationType(enum.Enum):
    """The average that a step applies to the parameters."""

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"


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
    """Parameters of one type that are sent together, and a flat tensor for them on `device`: by default, on a GPU if the
    first one is on one, in host memory otherwise.

    copies: how many tensors of each parameter's shape it has room for, such as the parameter and its momentum. First come
    those of all parameters, then the second ones of all.
    """

    def __init__(self, parameters, dtype=None, copies=1, device=None):
        self.parameters = parameters
        sizes = [p.numel() for p in parameters] * copies
        if device is None and parameters[0].is_cuda:
            device = parameters[0].device
        self.flat = torch.empty(sum(sizes), dtype=dtype or parameters[0].dtype, device=device)
        self.parts = [part.view(p.shape) for part, p in zip(self.flat.split(sizes), parameters * copies)]
        self.handle = None
        self.missing = len(parameters)

    @torch.no_grad()
    def gather(self, tensors):
        for part, tensor in zip(self.parts, tensors):
            part.copy_(tensor if part.is_cuda else tensor.cpu())

    @torch.no_grad()
    def scatter(self, tensors):
        for part, tensor in zip(self.parts, tensors):
            tensor.copy_(part)


def _buffers(parameters, buffer_bytes, copies):
    """Buffers for the parameters, in their order, so that they are the same on all ranks."""
    buffers, open_ones = [], {}
    for parameter in parameters:
        kind = parameter.dtype, parameter.device
        group = open_ones.setdefault(kind, [])
        group.append(parameter)
        if sum(p.numel() * p.element_size() for p in group) >= buffer_bytes:
            buffers.append(_Buffer(open_ones.pop(kind), copies=copies))
    return buffers + [_Buffer(group, copies=copies) for group in open_ones.values()]


class _Distributed:
    """The common part of all wrappers: parameters, their buffers, and when to communicate."""

    _made = 0
    buffer_bytes = 8 << 20  # a buffer is full when its parameters have this many bytes
    copies = 1  # see _Buffer

    def set_up(self, models, steps):
        _Distributed._made += 1
        self._key = f"optimizer {_Distributed._made}"
        self._steps = steps
        self._passes = 0  # since the last communication
        self._find_parameters(models)
        self._buffers = _buffers(self._trained, self.buffer_bytes, self.copies)
        self._hooks = [models[0].register_forward_pre_hook(self._before_forward)]
        self._nodes = []
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

    def _watch(self, parameter, on_gradient):
        """Calls on_gradient() whenever a backward pass has made the parameter's gradient final."""
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._hooks.append(parameter.register_post_accumulate_grad_hook(lambda _: on_gradient()))
        else:
            # The node that accumulates the gradient exists only while it is referred to.
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            self._hooks.append(node.register_hook(lambda *_: on_gradient()))
            self._nodes.append(node)

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

    def averaged(self, buffer):
        """The tensors of a buffer: its parameters, and what is averaged with them."""
        return buffer.parameters

    def _start(self):
        self._drain()
        try:
            for number, buffer in enumerate(self._buffers):
                buffer.gather(self.averaged(buffer))
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
                buffer.scatter(self.averaged(buffer))
        self._is_started = False
        self._passes = 0
