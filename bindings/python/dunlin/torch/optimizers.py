"""Optimizers with which ranks train one model together. They wrap any optimizer of PyTorch.

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = dunlin.torch.DistributedAdaptWithCombineOptimizer(optimizer, model)

In these formulas, x are a rank's parameters, d is the step that the wrapped optimizer takes for a gradient, and W
averages with neighbors (or all ranks):

    adapt with combine   x <- W x + d(gradient at x)      the average overlaps with the forward and backward passes
    adapt then combine   x <- W (x + d(gradient at x))    the averages can overlap with the backward pass
    gradient all-reduce  x <- x + d(average gradient)     the averages overlap with the backward pass
    win-put              x <- W' x + d(gradient at x)     W' uses what neighbors have put so far, without waiting
    DmSGD                adapt then combine by SGD with momentum, which is averaged as the parameters are
    QG-DmSGD             adapt then combine by SGD whose momentum follows the averaged parameters

A wrapped optimizer is an instance of the original class: schedulers, parameter groups and state_dict() work as before.
Small tensors are sent together, in buffers of a few MiB.
"""

import functools

import torch

import dunlin
from dunlin.torch import _operations, _windows
from dunlin.torch._momentum import _DmSGD, _QGDmSGD
from dunlin.torch._then_combine import _AdaptThenCombine
from dunlin.torch._wrapper import CommunicationType, _checked, _Combining, _Distributed, _wrap


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
                                         num_steps_per_communication=1, overlap=False):
    """x <- W (x + d(gradient at x)). Arguments and attributes: as DistributedAdaptWithCombineOptimizer(), and overlap.

    overlap=True: the averages overlap with the backward pass, layer by layer (BlueFog paper, V-C and Fig. 8). As soon as
        the gradients of about 1 MiB of parameters are final, the pass takes the wrapped optimizer's step for these
        parameters and starts their average. step() does the rest, and waits. The results are the same, bit by bit, with
        neighbor_allreduce; an all-reduce may round otherwise, because buffers have 8 MiB without overlap. It is an
        attribute, too, which may be changed before each backward pass and leaves the buffers as they are.

    What must hold with overlap: between the backward pass and step(), nothing reads or changes parameters, gradients and
    options of the optimizer, and each backward pass of a step that communicates is followed by step(). This is the
    program's choice, because not every violation can be seen (one that changes p.grad.data can't). The first step that
    communicates is a trial, without overlap. If it violates that, no step overlaps, and a warning says why:

        gradients are changed after the backward pass (clipping, a GradScaler), or there are several backward passes
        step() has a closure
        no forward pass of the model in training mode, by which steps are counted

    nor does a step overlap if the optimizer is not the SGD, Adam, AdamW, NAdam, RAdam, Adamax, Adagrad, Adadelta, RMSprop,
    Rprop or ASGD of torch.optim itself (LBFGS and classes that are derived from these), if it is differentiable, or if its
    step has hooks. why_no_overlap is that reason, or None. A violation in a later step comes too late for that: it is a
    RuntimeError. Gradients are accumulated with num_steps_per_communication, in whose last backward pass averages overlap.
    Where the average is collective (all but neighbor_allreduce, and with enable_topo_check), either all ranks make calls
    of their own between the backward pass and step() with overlap, or all without. An average that cannot be started is an
    error of step(), not of the backward pass.
    """
    return _wrap(_AdaptThenCombine, optimizer, model, num_steps_per_communication,
                 communication_type=_checked(communication_type), overlap=overlap)


def DistributedDmSGDOptimizer(optimizer, model, communication_type=CommunicationType.neighbor_allreduce,
                              num_steps_per_communication=1, overlap=False):
    """DmSGD, decentralized momentum SGD: ranks average their momentum with their parameters.

        m~ = mu m + g            g: the gradient at x, with weight decay
        x~ = x - lr m~           with nesterov: x - lr (g + mu m~)
        m <- W m~,  x <- W x~

    This is Yu, Jin and Yang, "On the Linear Speedup Analysis of Communication Efficient Momentum SGD for Distributed
    Non-Convex Optimization" (ICML 2019), the DmSGD of Table III in the BlueFog paper. What that table calls vanilla DmSGD
    leaves the momentum where it is: DistributedAdaptThenCombineOptimizer() of a torch.optim.SGD with momentum.

    optimizer: a torch.optim.SGD with 0 < momentum < 1 and no dampening in each parameter group. Groups may differ, but a
        parameter has the same momentum on all ranks.
    Other arguments, attributes: as DistributedAdaptThenCombineOptimizer(). W is the identity in a step that doesn't
        communicate.

    m has the parameter's shape, type and device, the unit of a gradient, and is optimizer.state[x]["momentum_buffer"], so
    that state_dict() contains it. A rank sends twice as many bytes as with adapt then combine. A parameter that has had
    no gradient yet has a momentum of zeros. float16 and bfloat16 are averaged in float32 and rounded once.

    ValueError, here or in step(): the optimizer is not such an SGD.
    """
    return _wrap(_DmSGD, optimizer, model, num_steps_per_communication, communication_type=_checked(communication_type),
                 overlap=overlap)


def DistributedQGDmSGDOptimizer(optimizer, model, communication_type=CommunicationType.neighbor_allreduce,
                                num_steps_per_communication=1, overlap=False, mu=None):
    """QG-DmSGD, SGD with quasi-global momentum: it follows the averaged parameters, so it estimates the direction in which
    all ranks go, without being sent. It is for ranks whose data differ much.

        x~ = x - lr (beta m + g)                   g: the gradient at x, with weight decay; beta: the group's momentum
                                                   with nesterov: x - lr (g + beta (beta m + g))
        x' = W x~
        m <- mu m + (1 - mu) (x - x') / lr,  x <- x'

    This is QG-DSGDm of Lin, Karimireddy, Stich and Jaggi, "Quasi-Global Momentum: Accelerating Decentralized Deep Learning
    on Heterogeneous Data" (ICML 2021), the QG-DmSGD of Table III in the BlueFog paper. lr is the group's in that step; a
    step with lr = 0 leaves m as it is. On one rank it is not heavy-ball momentum: m <- (mu + (1 - mu) beta) m + (1 - mu) g.
    It is for mu = 0.

    optimizer: a torch.optim.SGD with 0 < momentum < 1 and no dampening in each parameter group. Groups may differ.
    mu: 0 <= mu < 1, an attribute that may be changed before each step. None: beta, as in the paper.
    Other arguments, attributes: as DistributedAdaptThenCombineOptimizer(). W is the identity in a step that doesn't
        communicate.

    m has the parameter's shape, type and device, the unit of a gradient, and is optimizer.state[x]["momentum_buffer"] between
    steps, so that state_dict() contains it. A step needs memory for two copies of the parameters. With parameters in float16
    and bfloat16, the difference of x and x' is as coarse as they are: keep parameters in float32, and use autocast.

    ValueError, here or in step(): the optimizer is not such an SGD, or mu is out of range.
    """
    return _wrap(_QGDmSGD, optimizer, model, num_steps_per_communication, communication_type=_checked(communication_type),
                 overlap=overlap, mu=mu)


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


class _GradientAllreduce(_Distributed):
    def set_up(self, models, steps):
        super().set_up(models, steps)
        self._next = 0  # the next buffer to be sent: all ranks send them in the same order
        self._backward = {}  # {parameter: its backward passes since the last communication}
        self._is_averaged = False
        for buffer in self._buffers:
            for parameter in buffer.parameters:
                self._watch(parameter, functools.partial(self._count, parameter, buffer))

    def _count(self, parameter, buffer):
        passes = self._backward[parameter] = self._backward.get(parameter, 0) + 1
        if passes > self._steps:
            raise RuntimeError(f"more than {self._steps} backward passes before step(): the last gradients would "
                               "be lost; set num_steps_per_communication")
        if passes == self._steps:
            buffer.missing -= 1
            self._send_ready()

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
