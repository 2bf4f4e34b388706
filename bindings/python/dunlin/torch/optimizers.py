"""Optimizers with which ranks train one model together. They wrap any optimizer of PyTorch.

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = dunlin.torch.DistributedAdaptWithCombineOptimizer(optimizer, model)

In these formulas, x are a rank's parameters, d is the step that the wrapped optimizer takes for a gradient, and W
averages with neighbors (or all ranks):

    adapt with combine   x <- W x + d(gradient at x)      the average overlaps with the forward and backward passes
    adapt then combine   x <- W (x + d(gradient at x))    the averages can overlap with the backward pass
    gradient all-reduce  x <- x + d(average gradient)     the averages overlap with the backward pass, which waits for them
    win-put              x <- W' x + d(gradient at x)     W' uses what neighbors have put so far, without waiting
    DmSGD                adapt then combine by SGD with momentum, which is averaged as the parameters are
    QG-DmSGD             adapt then combine by SGD whose momentum follows the averaged parameters

A wrapped optimizer is an instance of the original class: schedulers, parameter groups and state_dict() work as before.
Small tensors are sent together, in buffers of a few MiB. float16 and bfloat16 are averaged in float32 and rounded once.

With init(on_peer_loss="continue"), W goes on without ranks that have died, and the other ranks train on:
neighbor_allreduce() says what becomes of the weights. Averages of all ranks and of machines do not survive: an optimizer
with them is a dunlin.UnavailableError then.

Parameters are wrapped once: leave() ends a wrapper, frees windows (then all ranks call it), and lets the parameters be
wrapped again. A GradScaler that skips a step on some ranks only makes these lag behind: DistributedOptimizer() says how
ranks share what it has found.
"""

import functools

import torch

import dunlin
from dunlin import _survivors
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

    When that backward pass ends, gradients are averages, the same on all ranks: they may be clipped, and a GradScaler finds
    the same on all ranks. If a rank's pass doesn't use all parameters, some averages are left for step(): call synchronize()
    before gradients are read or changed. A parameter whose gradient is None on all ranks keeps it.
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
        self._check_step()
        if closure is not None:
            raise ValueError("step(closure) is not possible: the closure would use the model during an average")
        if self._is_time_to_step() and not self._is_started:
            self._start()
        if self._is_started:
            self._finish()
        return self._local_step(None)


class _GradientAllreduce(_Distributed):
    """Gradients become averages when the backward pass ends, so that programs may clip and unscale them before step().

    In a round all buffers are sent once, in the same order on all ranks. Those with a parameter that the pass didn't use
    are left for synchronize() or step().
    """

    # Flags: 1 for a parameter with a gradient. Their averages say whether some rank has one.
    buffer_options = {"is_wide": True, "flags": True}

    def set_up(self, models, steps):
        _survivors.refuse("the average of all ranks' gradients")
        super().set_up(models, steps)
        self._failure = None  # of an average, for step()
        self._is_ending = False  # whether the backward pass in progress will call _end_pass()
        self._is_averaged = False  # whether all gradients are averages
        self._rounds = 0  # since the last step
        self._begin_round()
        for buffer in self._buffers:
            for parameter in buffer.parameters:
                self._watch(parameter, functools.partial(self._count, parameter, buffer))

    def _begin_round(self):
        self._order = self._buffers[::-1]  # the gradients of the last layers are computed first
        self._next = 0  # the next buffer of the order
        self._backward = {}  # {parameter: its backward passes}
        self._passes = 0
        for buffer in self._buffers:
            buffer.missing = len(buffer.parameters)
            buffer.is_sent = False
            buffer.used = []  # [(a gradient that is an average, its version)]

    def _end_round(self):
        self._begin_round()
        self._is_averaged = True
        self._rounds += 1

    # The backward pass

    def _count(self, parameter, buffer):
        self._is_averaged = False
        passes = self._backward[parameter] = self._backward.get(parameter, 0) + 1
        if passes > self._steps and (buffer.is_sent or buffer.used):
            raise RuntimeError(
                f"the gradient of a parameter of the shape {tuple(parameter.shape)} has changed after it was sent, in its "
                f"pass {passes} since the last average. After {self._steps} passes (num_steps_per_communication), call "
                "step() or synchronize(). If it is one pass, do not use a tied weight in checkpoints with "
                "use_reentrant=True")
        if passes == self._steps:
            buffer.missing -= 1
            self._send_ready()

    def _send_ready(self):
        while self._next < len(self._order) and self._order[self._next].missing <= 0:
            self._send_next()
            if not self._is_ending:
                self._is_ending = True
                torch.autograd.Variable._execution_engine.queue_callback(self._end_pass)

    def _send_next(self):
        buffer = self._order[self._next]
        buffer.gather([torch.zeros_like(p) if p.grad is None else p.grad for p in buffer.parameters])
        flags = [float(p.grad is not None) for p in buffer.parameters]
        if all(flags):
            buffer.flags.fill_(1)  # without a copy to a GPU
        else:
            buffer.flags.copy_(torch.tensor(flags))
        buffer.handle = self.start_mean(buffer)
        buffer.is_sent = True
        self._next += 1

    def start_mean(self, buffer):
        """Starts the average of a buffer's flat tensor in place, and returns its handle."""
        return _operations.allreduce_nonblocking_(buffer.flat, True, name=self._key)

    def _end_pass(self):
        self._is_ending = False
        try:
            self._receive()
        except dunlin.Error as error:  # step() raises it
            self._failure = error
            return
        if self._next == len(self._order):
            self._end_round()

    def _receive(self):
        """Puts the averages of the buffers that were sent into the gradients."""
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
        if failure is not None:
            raise failure
        for buffer in self._buffers:
            if buffer.is_sent:
                buffer.is_sent = False
                self._use(buffer)

    @torch.no_grad()
    def _use(self, buffer):
        for number, (parameter, part) in enumerate(zip(buffer.parameters, buffer.parts)):
            if parameter.grad is None:
                if buffer.flags[number] == 0:
                    continue  # no rank has one
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.copy_(part)
            buffer.used.append((parameter.grad, parameter.grad._version))

    # The step

    def synchronize(self):
        """Waits until all gradients are averages. The end of a backward pass does, unless it didn't use all parameters."""
        if not self._is_averaged:
            self._average()

    def _average(self):
        failure, self._failure = self._failure, None
        try:
            while self._next < len(self._order):
                self._send_next()
            if isinstance(failure, dunlin.DeadlineExceededError):
                raise failure  # the next call waits again
            self._receive()
        except dunlin.DeadlineExceededError:
            raise
        except dunlin.Error as error:
            failure = failure or error
        if failure is not None:
            self._begin_round()
            raise failure
        self._end_round()

    def step(self, closure=None):
        self._check_step()
        if closure is not None:
            raise ValueError("step(closure) is not possible: the closure's gradients would not be averaged")
        if not self._is_averaged:
            if self._is_time_to_step() or max(self._backward.values(), default=0) >= self._steps:
                self._check_gradients()
                self._average()
            elif self._rounds > 0:
                raise RuntimeError("step() comes after an average and more backward passes, whose gradients are not "
                                   f"averaged: call it after {self._steps} passes (num_steps_per_communication)")
        if self._is_averaged:
            self._passes = 0
        self._is_averaged = self._is_seen = False
        self._rounds = 0
        return self._local_step(None)

    def _check_gradients(self):
        if self._next < len(self._order) and any(gradient._version != version for buffer in self._buffers
                                                 for gradient, version in buffer.used):
            raise RuntimeError("gradients were changed, as by clipping, when some were averages and others were not, "
                               "because the backward pass didn't use all parameters: call synchronize() before")


class _WinPut(_Distributed):
    buffer_options = {"is_wide": True}

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
        self._check_step()
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

    def end(self):
        self.unregister_window()
