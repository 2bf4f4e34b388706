"""What the wrappers of optimizers have in common: parameters, their buffers, when to communicate, and which average."""

import enum
import weakref

import torch

import dunlin
from dunlin import _survivors
from dunlin.torch import _operations

# {the first model that was given: [the wrappers for it that have not left]}. It is empty for a model that is gone. Wrappers
# therefore must not refer to their models.
_wrapped = weakref.WeakKeyDictionary()
# The types whose sums lose too much: they are summed in float32.
_SMALL = (torch.float16, torch.bfloat16)


class CommunicationType(enum.Enum):
    """The average that a step applies to the parameters."""

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"


def _checked(communication_type):
    if not isinstance(communication_type, CommunicationType):
        raise ValueError(f"communication_type {communication_type!r} is not a CommunicationType")
    if communication_type in (CommunicationType.allreduce, CommunicationType.hierarchical_neighbor_allreduce):
        _survivors.refuse(f"an optimizer with {communication_type}")
    return communication_type


def _checked_steps(steps):
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"num_steps_per_communication {steps!r}: it has to be an integer of at least 1")
    return steps


def _wrap(kind, optimizer, model, steps, **options):
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, _Distributed):
        raise ValueError("optimizer has to be a torch.optim.Optimizer that is not wrapped yet")
    _checked_steps(steps)
    owner = type(f"Distributed{type(optimizer).__name__}", (kind, type(optimizer)), {})
    wrapped = owner.__new__(owner)
    # Both share their state, except for step(), which a scheduler may have replaced in the old one.
    wrapped.__dict__ = {name: value for name, value in optimizer.__dict__.items() if name != "step"}
    # load_state_dict() of PyTorch 2 gives a class a step() that calls the optimizer's hooks, unless it has one. Here, the
    # step of the wrapped class calls them.
    kind.step.hooked = True
    models = _models(model)
    try:
        wrapped.set_up(models, steps, **options)
    except BaseException:
        wrapped._unhook()
        raise
    wrapped.begin(models)
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
    flags: whether a number for each parameter comes at the end, in `flags`.
    """

    def __init__(self, parameters, dtype=None, copies=1, flags=False, device=None):
        self.parameters = parameters
        sizes = [p.numel() for p in parameters] * copies
        sizes.append(len(parameters) if flags else 0)
        if device is None and parameters[0].is_cuda:
            device = parameters[0].device
        self.flat = torch.empty(sum(sizes), dtype=dtype or parameters[0].dtype, device=device)
        *parts, self.flags = self.flat.split(sizes)
        self.parts = [part.view(p.shape) for part, p in zip(parts, parameters * copies)]
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


def _buffers(parameters, buffer_bytes, is_wide=False, **options):
    """Buffers for the parameters, in their order, so that they are the same on all ranks.

    is_wide: those of float16 and bfloat16 have a flat tensor of float32.
    """
    def make(group):
        return _Buffer(group, torch.float32 if is_wide and group[0].dtype in _SMALL else None, **options)

    buffers, open_ones = [], {}
    for parameter in parameters:
        kind = parameter.dtype, parameter.device
        group = open_ones.setdefault(kind, [])
        group.append(parameter)
        if sum(p.numel() * p.element_size() for p in group) >= buffer_bytes:
            buffers.append(make(open_ones.pop(kind)))
    return buffers + [make(group) for group in open_ones.values()]


def _is_in_backward():
    """Whether this thread runs a part of a backward pass."""
    if hasattr(torch._C, "_current_graph_task_id"):
        return torch._C._current_graph_task_id() != -1
    try:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: None)
    except RuntimeError:
        return False
    return True


def _uncompiled(function):
    """The function, which torch.compile() leaves as it is where it comes across it in a model."""
    return torch.compiler.disable(function) if hasattr(torch, "compiler") else function


class _Distributed:
    """The common part of all wrappers: parameters, their buffers, and when to communicate."""

    _made = 0
    buffer_bytes = 8 << 20  # a buffer is full when its parameters have this many bytes
    buffer_options = {}  # see _buffers() and _Buffer
    may_freeze = True  # whether parameters may need no gradient any more
    _has_left = False
    _hooks = ()

    def set_up(self, models, steps):
        _Distributed._made += 1
        self._key = f"optimizer {_Distributed._made}"
        self._steps = steps
        self._passes = 0  # since the last communication
        self._find_parameters(models)
        self._buffers = _buffers(self._trained, self.buffer_bytes, **self.buffer_options)
        self._hooks = [models[0].register_forward_pre_hook(_uncompiled(self._before_forward))]
        self._nodes = []
        self._is_seen = False  # a forward pass since the last step
        self._unrecorded = 0  # forward passes without gradients since then, which a checkpoint may compute again

    def begin(self, models):
        """Comes after set_up(): from now on, the models are wrapped."""
        _wrapped.setdefault(models[0], []).append(self)

    def _find_parameters(self, models):
        """Sets _trained: the parameters of the models that the optimizer has, each once, in the models' order."""
        self._trainable = self._trainable_now()
        optimized = {id(p) for group in self.param_groups for p in group["params"]}
        in_models = {id(p): p for model in models for p in model.parameters()}
        parameters = [p for key, p in in_models.items() if key in optimized]
        if not parameters:
            raise ValueError("the optimizer has no parameters of the model")
        alone = [p for key, p in self._trainable.items() if key not in in_models]
        if alone:
            raise ValueError(f"{len(alone)} parameters of the optimizer are not in the model, with the shapes "
                             f"{_shapes(alone)}: each rank would train its own. Give all models, as a list")
        for parameter in parameters:
            if parameter.device.type == "meta":
                raise ValueError("a parameter is on the meta device, where it has no elements")
        self._trained = [p for p in parameters if p.requires_grad]
        others = {id(p) for wrappers in _wrapped.values() for other in wrappers for p in other._trained}
        if not others.isdisjoint(map(id, self._trained)):
            raise ValueError("the model is wrapped already, by an optimizer whose leave() was not called")

    def _trainable_now(self):
        return {id(p): p for group in self.param_groups for p in group["params"] if p.requires_grad}

    def _check_step(self):
        if self._has_left:
            raise RuntimeError("step() after leave()")
        now = self._trainable_now()
        if now.keys() == self._trainable.keys():
            return
        more = [p for key, p in now.items() if key not in self._trainable]
        less = [] if self.may_freeze else [p for key, p in self._trainable.items() if key not in now]
        changes = [f"{len(those)} {what}, with the shapes {_shapes(those)}"
                   for those, what in ((more, "have been added or need gradients now"),
                                       (less, "have been removed or need no gradient now")) if those]
        if changes:
            raise ValueError("the optimizer's parameters have changed since it was wrapped: "
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
        self._drain()

    def _drain(self):
        """Ends averages that are still in progress, after an error or without a step."""
        for buffer in self._buffers:
            if buffer.handle is not None:
                _operations.synchronize(buffer.handle)
                buffer.handle = None

    def _forget(self):
        self._has_left = True
        self._unhook()
        for wrappers in _wrapped.values():
            if self in wrappers:
                wrappers.remove(self)

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
        if not model.training:
            return
        if not torch.is_grad_enabled():
            self._unrecorded += 1
            return
        if not _is_in_backward():
            self._unrecorded = 0
        elif self._unrecorded == 0:
            return  # a checkpoint computes again what was counted
        else:
            self._unrecorded -= 1
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
        self._hooks = []


def _shapes(tensors):
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)


def _start_mean(tensor, start):
    """start(tensor) returns the handle of an average in place, here of a float32 copy of float16 and bfloat16."""
    return start(tensor.float() if tensor.dtype in _SMALL else tensor)


def _finish_mean(buffer):
    """Waits until the average is in the buffer's flat tensor."""
    average = _operations.synchronize(buffer.handle)
    buffer.handle = None
    if average is not buffer.flat:
        buffer.flat.copy_(average)


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
            return _start_mean(tensor, lambda x: _operations.allreduce_nonblocking_(x, True, name=name))
        if kind is CommunicationType.neighbor_allreduce:
            return _operations.neighbor_allreduce_nonblocking_(
                tensor, self_weight=self.self_weight, src_weights=self.src_weights, dst_weights=self.dst_weights,
                enable_topo_check=self.enable_topo_check, name=name)
        if kind is CommunicationType.hierarchical_neighbor_allreduce:
            return _start_mean(tensor, lambda x: _operations.hierarchical_neighbor_allreduce_nonblocking_(
                x, self_weight=self.self_weight, src_machine_weights=self.src_machine_weights,
                dst_machine_weights=self.dst_machine_weights, enable_topo_check=self.enable_topo_check, name=name))
        return None

    def _finish(self):
        for buffer in self._buffers:
            if buffer.handle is not None:
                _finish_mean(buffer)
                buffer.scatter(self.averaged(buffer))
        self._is_started = False
        self._passes = 0
