"""DistributedOptimizer: the methods of dunlin-cnn (--method), around any optimizer of PyTorch."""

import inspect

import torch

import dunlin
from dunlin import _survivors
from dunlin.torch import _job, _operations
from dunlin.torch._method import _agree, _Method
from dunlin.torch._wrapper import _Buffer, _checked_steps, _Distributed, _models, _wrap
from dunlin.torch.optimizers import _GradientAllreduce

# The types of parameters, and those in which they are averaged.
_AVERAGED_AS = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float32,
                torch.float64: torch.float64}


def DistributedOptimizer(optimizer, model, method="all-reduce", **options):
    """Wraps an optimizer so that the ranks train one model together, by a method that is chosen by its name.

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = dunlin.torch.DistributedOptimizer(optimizer, model, method="partial", section_length=4)

    Methods and options have the names that they have in dunlin-cnn. In these formulas x are a rank's parameters, and d
    is the step that the wrapped optimizer takes for a gradient.

    method                    step()                                       a rank waits for     after a death
    "all-reduce"              x <- x + d(average gradient)                 all ranks            error
    "straggler-ring"          x <- x + d(average gradient)                 all ranks            error
    "local-sgd"               x <- mean of all (x + d(gradient))           all ranks            error
    "stochastic"              x <- W (x + d(gradient)), W of a graph       its in-neighbors     error
    "partial"                 x <- mean of a group of (x + d(gradient))    the group's ranks    the others continue
    "ad-psgd"                 x <- mean with one neighbor, + d(gradient)   that neighbor        the others continue
    "parameter-server"        x <- the servers' x + d(average gradient)    all workers          error
    "async-parameter-server"  x <- the servers' x + d(gradient)            the servers          the others continue

    all-reduce, straggler-ring:
        num_steps_per_communication=1: the number of backward passes whose gradients are added up before they are averaged
    straggler-ring (dunlin.StragglerRing), whose rings do not wait for a rank that is late now and then:
        late="adaptive", step=0.0, transfer=0.0, alpha=2.0
    local-sgd, partial:
        section_length=1: the number of steps from one average to the next
    local-sgd, stochastic, partial:
        overlap=False. True: step() sends the model and returns, and the next step() averages what has come meanwhile
        before it adds its d: x <- W x + d(gradient at x). synchronize() puts the last average into the model.
    stochastic (dunlin.StochasticReduce):
        graph="root-expander", sync="notify-ack", depth=2, weighting="uniform". "bsp" waits for all ranks, "async" for
        none. The graph has to be strongly connected.
    partial (dunlin.GroupAverage):
        groups="smart" (its `source`), group_size=3, slowdown_threshold=4, layout=None, seed=1. With groups="static" a
        death is an error.
    ad-psgd (dunlin.PairAverage):
        graph="complete", seed=1
    parameter servers (dunlin.ParameterServers):
        servers=1: how many of the last ranks are servers, which don't train. Where optimizer.is_server, call
        optimizer.serve(), which returns when all workers have left. The servers take the steps, so the optimizer has to
        be a torch.optim.SGD, without dampening and nesterov, with one learning rate, momentum and weight decay for all
        parameters. The wrapped optimizer takes no step, and has no momentum in its state_dict(). A state with momentum is
        a ValueError. A parameter without a gradient has a gradient of zeros at the servers, so that momentum and weight
        decay change it. The learning rate may change. With "parameter-server" it has to be the same on all workers in
        every step; otherwise serve() raises dunlin.InvalidArgumentError, and the workers wait in vain. The death of a
        server is an error. A server's model keeps its initial values, also after serve().

    Collective over all ranks, with the same arguments and the same model. A mistake of one rank is a ValueError on all
    ranks. With parameter servers all workers start from the parameters of rank 0, which a worker has after its first
    step. With other methods each rank starts from the parameters that its model has: broadcast_parameters() makes them
    equal. Models in float16 and bfloat16 are sent and averaged as float32, and then rounded. Models in float64 are
    possible with all-reduce, straggler-ring, local-sgd and stochastic. Buffers of the model (as BatchNorm's) stay a
    rank's own. Parameters on a GPU are averaged there with all-reduce, local-sgd, partial and stochastic (notify-ack), if
    all ranks have them on a GPU that they can use. Otherwise they go through host memory.

    The optimizer's trainable parameters must stay the same while it is wrapped, and so must momentum and weight decay
    with parameter servers. Otherwise step() raises ValueError.

    With partial (except static groups), ad-psgd, async-parameter-server, and stochastic in async, ranks need not make
    the same number of steps. With the other methods they must. A torch.amp.GradScaler breaks that if it finds an
    infinite gradient on some ranks only, because it skips step() there. That rank is then one average behind: with
    local-sgd, stochastic (bsp and notify-ack), partial with static groups, and parameter-server, other ranks wait for
    it, average models or gradients of different steps, and wait until the deadline at the end. Share what the scaler
    has found, so that all ranks skip the step:

        scaler.unscale_(optimizer)
        for found in scaler._found_inf_per_device(optimizer).values():
            bf.allreduce_(found)  # not 0 if it isn't 0 on some rank
        scaler.step(optimizer)

    Parameter servers need that on the workers only, which can use dunlin.split(). With all-reduce, gradients are averages
    when the backward pass ends, so that all ranks find the same. If a pass may leave parameters without gradients, call
    synchronize() before gradients are unscaled or clipped.

    The result is an instance of the optimizer's class, and has besides:
        synchronize()  waits for the average in progress, and puts it into the model (with all-reduce: the gradients)
        statistics()   the dictionary of the average's class, such as dunlin.GroupAverage.statistics(). It has the
                       "bytes_sent" by this rank; with all-reduce and local-sgd, the least that an all-reduce sends
        leave()        takes this rank out, after its last step and before shutdown(). Only then may the parameters be
                       wrapped again. All ranks call it, each when it has finished. After DeadlineExceededError and
                       Ctrl-C, call it again. With ad-psgd and parameter servers, copies of the model and their buffers
                       stay in memory until shutdown().

    With init(on_peer_loss="continue"), only the methods with which the others continue are possible; any other one is a
    dunlin.UnavailableError. dunlin.torch.reform() ends what they have made: call leave() before it, and make another one.

    A wait that takes longer than DUNLIN_DEADLINE raises dunlin.DeadlineExceededError, which names the rank that was
    waited for. The average continues, and synchronize() or the next step() waits for it again. A death raises
    dunlin.PeerDeadError, in later steps as well. After such an error, the model has this rank's own step, without an
    average.
    """
    made = mistake = None
    try:
        if method not in _METHODS:
            raise ValueError(f"there is no method {method!r}; known are {', '.join(map(repr, _METHODS))}")
        kind = _METHODS[method]
        if method not in _SURVIVING or options.get("groups") == "static":
            _survivors.refuse(f"DistributedOptimizer with {method!r}" + " and static groups" * (method in _SURVIVING))
        known = [name for name in inspect.signature(kind.prepare).parameters if name != "self"]
        for name in options:
            if name not in known:
                raise ValueError(f"{method!r} has no option {name!r}; it has {', '.join(known) if known else 'none'}")
        made = _wrap(kind, optimizer, model, 1, method=method, options=options)
    except Exception as error:
        mistake = error
    _agree(mistake)
    made.join(_models(model))
    return made


def _all_reduced(flats):
    """The bytes that a rank sends in an all-reduce of each tensor: 2 (n - 1) / n of its size, which is the least."""
    return sum(flat.numel() * flat.element_size() for flat in flats) * 2 * (_job.size() - 1) // _job.size()


class _AllReduce(_Method, _GradientAllreduce):
    def prepare(self, num_steps_per_communication=1):
        self._averages = 0
        self._passes_per_step = _checked_steps(num_steps_per_communication)

    def make(self, models):
        _GradientAllreduce.set_up(self, models, self._passes_per_step)

    def _end_round(self):
        super()._end_round()
        self._averages += 1

    def synchronize(self):
        self._check_step()
        super().synchronize()

    def statistics(self):
        sent = self._averages * _all_reduced(buffer.flat for buffer in self._buffers)
        return {"averages": self._averages, "bytes_sent": sent}


class _StragglerRing(_AllReduce):
    """The averages of _AllReduce, by a ring for each buffer, in host memory."""

    def prepare(self, num_steps_per_communication=1, late="adaptive", step=0.0, transfer=0.0, alpha=2.0):
        super().prepare(num_steps_per_communication)
        self._lateness = {"late": late, "step": step, "transfer": transfer, "alpha": alpha}

    def make(self, models):
        super().make(models)
        for number, buffer in enumerate(self._buffers):
            dtype = str(buffer.flat.dtype).replace("torch.", "")
            buffer.ring = dunlin.StragglerRing(buffer.flat.numel(), dtype, name=f"{self._key}.{number}", **self._lateness)

    def start_mean(self, buffer):
        data = torch.from_numpy(buffer.ring.data)
        data.copy_(buffer.flat)

        def finish(_):
            buffer.flat.copy_(data)
            return buffer.flat

        request = buffer.ring.start_all_reduce()
        return _operations.register(_operations.Pending(request, finish, "ALLREDUCE", self._key))

    def end(self):
        super().end()
        self._free_all([buffer.ring for buffer in self._buffers])

    def statistics(self):
        """The number of averages, and the sums of the rings' statistics."""
        rings = [buffer.ring.statistics() for buffer in self._buffers]
        return {**super().statistics(), **{key: sum(ring[key] for ring in rings) for key in rings[0]}}


class _Averaging(_Method, _Distributed):
    """Averages the parameters after a step of the wrapped optimizer, in one flat tensor for each type."""

    takes_float64 = False

    def set_up(self, models, steps, method, options):
        self._pending = []  # (buffer, request) of the average in progress
        self._steps_done = 0
        self._section_length = 1
        self._overlap = False
        super().set_up(models, steps, method, options)

    def _find_parameters(self, models):
        super()._find_parameters(models)
        self._flats = self._make_flats()

    def _make_flats(self):
        if not self._trained:
            raise ValueError("no parameter of the model has requires_grad, so there is nothing to average")
        by_type = {}
        for parameter in self._trained:
            averaged_as = _AVERAGED_AS.get(parameter.dtype)
            if averaged_as is None or averaged_as is torch.float64 and not self.takes_float64:
                takes = "float16, bfloat16, float32" + (" and float64" if self.takes_float64 else "")
                raise ValueError(f"{self._method!r} averages parameters of {takes}, and not of {parameter.dtype}")
            by_type.setdefault(averaged_as, []).append(parameter)
        # In the same order on all ranks, whichever type comes first.
        return [_Buffer(by_type[dtype], dtype, device=torch.device("cpu")) for dtype in (torch.float32, torch.float64)
                if dtype in by_type]

    def _move_to_gpu(self):
        """Puts the flat tensors on the GPU of the parameters, if all ranks can use theirs, and returns its number."""
        if self._gpu is None:
            return None
        self._flats = [_Buffer(buffer.parameters, buffer.flat.dtype, device=self._gpu) for buffer in self._flats]
        return self._gpu.index

    def _use(self, section_length, overlap):
        if isinstance(section_length, bool) or not isinstance(section_length, int) or section_length < 1:
            raise ValueError(f"section_length {section_length!r}: it has to be an integer of at least 1")
        self._section_length = section_length
        self._overlap = bool(overlap)

    def start(self, number, flat):
        """Starts the average of a flat tensor in place, and returns its request."""
        raise NotImplementedError

    def step(self, closure=None):
        self._check_step()
        self.synchronize()
        loss = self._local_step(closure)
        self._steps_done += 1
        if self._steps_done % self._section_length == 0:
            self._start()
            if not self._overlap:
                self.synchronize()
        return loss

    def _start(self):
        for number, buffer in enumerate(self._flats):
            buffer.gather(buffer.parameters)
            with _operations.on_device_of(buffer.flat):
                self._pending.append((buffer, self.start(number, buffer.flat)))

    def synchronize(self):
        """Waits for the average in progress, and puts it into the model."""
        for _, request in self._pending:
            request.wait()
        for buffer, _ in self._pending:
            buffer.scatter(buffer.parameters)
        self._pending.clear()

    def end(self):
        self.synchronize()
        self.finish()

    def finish(self):
        """Leaves what make() has made. It is called again after a timeout."""

    def statistics(self):
        raise NotImplementedError


class _LocalSgd(_Averaging):
    takes_float64 = True
    _made = 0

    def prepare(self, section_length=1, overlap=False):
        self._use(section_length, overlap)
        self._averages = 0

    def make(self, models):
        self._move_to_gpu()
        _LocalSgd._made += 1
        self._name = f"local-sgd {_LocalSgd._made}"

    def start(self, number, flat):
        self._averages += number == 0
        return dunlin.start_all_reduce(flat, "avg", out=flat, name=f"{self._name}.{number}")

    def statistics(self):
        sent = self._averages * _all_reduced(buffer.flat for buffer in self._flats)
        return {"averages": self._averages, "bytes_sent": sent}


class _Stochastic(_Averaging):
    takes_float64 = True

    def prepare(self, graph="root-expander", sync="notify-ack", depth=2, weighting="uniform", overlap=False):
        self._use(1, overlap)
        made = graph if isinstance(graph, dunlin.graph.Graph) else dunlin.graph.make(graph, _job.size())
        if not made.is_strongly_connected():
            raise ValueError(f"graph {graph!r} is not strongly connected: some models would not reach all ranks")
        self._options = made, sync, depth, weighting

    def make(self, models):
        gpu = self._move_to_gpu() if self._options[1] == "notify-ack" else None
        self._reduces = [dunlin.StochasticReduce(buffer.flat.numel(), *self._options,
                                                 str(buffer.flat.dtype).replace("torch.", ""), "optimizer",
                                                 gpu) for buffer in self._flats]

    def start(self, number, flat):
        return self._reduces[number].start_average(flat)

    def finish(self):
        self._free_all(self._reduces)

    def statistics(self):
        """Those of the first type of parameters, but the bytes of all types."""
        done = [reduce.statistics() for reduce in self._reduces]
        return {**done[0], "bytes_sent": sum(each["bytes_sent"] for each in done)}


class _Partial(_Averaging):
    def prepare(self, groups="smart", group_size=3, slowdown_threshold=4, layout=None, seed=1, section_length=1,
                overlap=False):
        self._use(section_length, overlap)
        self._options = groups, group_size, slowdown_threshold, layout, seed

    def make(self, models):
        gpu = self._move_to_gpu()
        self._groups = dunlin.GroupAverage(self._flats[0].flat.numel(), *self._options, "optimizer", gpu)

    def start(self, number, flat):
        return self._groups.start_average(flat)

    def finish(self):
        self._groups.leave()

    def statistics(self):
        return self._groups.statistics()


class _AdPsgd(_Averaging):
    def prepare(self, graph="complete", seed=1):
        self._options = graph, seed

    def make(self, models):
        self._pairs = dunlin.PairAverage(self._flats[0].flat.numel(), *self._options, "optimizer")

    def start(self, number, flat):
        return self._pairs.start_average(flat)

    def finish(self):
        if self._steps_done == 0:
            self._pairs.leave()
            return
        buffer = self._flats[0]
        self._pairs.leave(buffer.flat)
        buffer.scatter(buffer.parameters)

    def statistics(self):
        return self._pairs.statistics()


class _Servers(_Averaging):
    """The servers take the wrapped optimizer's step, so that has to be SGD."""

    asynchronous = False

    def prepare(self, servers=1):
        if torch.optim.SGD not in type(self).__bases__:
            raise ValueError(f"{self._method!r}: the servers apply SGD, so the optimizer has to be a torch.optim.SGD")
        self._check_options()
        self._learning_rate()
        self._server_count = servers
        self._sgd = self._sgd_now()

    def make(self, models):
        self._servers = dunlin.ParameterServers(self._flats[0].flat.numel(), self._server_count, self.asynchronous,
                                                *self._sgd.values(), "optimizer")
        self._gradients = _Buffer(self._flats[0].parameters, torch.float32, device=torch.device("cpu"))

    def _check_options(self):
        for option, wanted in (("dampening", 0), ("nesterov", False), ("maximize", False)):
            if any(group.get(option, wanted) != wanted for group in self.param_groups):
                raise ValueError(f"{self._method!r}: the servers apply SGD without {option}")
        if any(state.get("momentum_buffer") is not None for state in self.state.values()):
            raise ValueError(f"{self._method!r}: the optimizer's state has momentum, which the servers can't take: theirs "
                             "begins with zeros. Delete it: optimizer.state.clear()")

    def _sgd_now(self):
        return {option: self._common(option) for option in ("momentum", "weight_decay")}

    def _check_step(self):
        super()._check_step()
        self._check_options()
        for option, now in self._sgd_now().items():
            if now != self._sgd[option]:
                raise ValueError(f"{self._method!r}: {option} is {now} now, and {self._sgd[option]} at the servers, "
                                 "which have that of the time when the optimizer was wrapped")

    def _common(self, option):
        values = {float(group[option]) for group in self.param_groups}
        if len(values) > 1:
            raise ValueError(f"{self._method!r}: the servers know one {option} for all parameters, not "
                             f"{sorted(values)}")
        return values.pop()

    def _learning_rate(self):
        return self._common("lr")

    @property
    def is_server(self):
        """Whether this rank holds a part of the model for the others, instead of training."""
        return self._servers.is_server

    def serve(self, timeout=None):
        """Servers only: returns when all workers have left. See dunlin.ParameterServers.serve()."""
        self._servers.serve(timeout)

    def step(self, closure=None):
        self._check_step()
        self.synchronize()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        buffer = self._flats[0]
        buffer.gather(buffer.parameters)
        self._gradients.gather([torch.zeros_like(p) if p.grad is None else p.grad for p in buffer.parameters])
        request = self._servers.start_step(buffer.flat, self._gradients.flat, self._learning_rate())
        self._pending.append((buffer, request))
        self.synchronize()
        return loss

    def finish(self):
        if not self.is_server:
            self._servers.leave()

    def statistics(self):
        return self._servers.statistics()


class _AsyncServers(_Servers):
    asynchronous = True


# Those with which the others continue after a death.
_SURVIVING = {"partial", "ad-psgd", "async-parameter-server"}
_METHODS = {"all-reduce": _AllReduce, "parameter-server": _Servers, "async-parameter-server": _AsyncServers,
            "local-sgd": _LocalSgd, "stochastic": _Stochastic, "partial": _Partial, "ad-psgd": _AdPsgd,
            "straggler-ring": _StragglerRing}
