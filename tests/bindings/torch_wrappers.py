"""The wrappers of dunlin.torch, and a model to train with any of them: common parts of their tests."""

import collections

import torch
import torch.utils.checkpoint

import dunlin.torch as bf

torch.set_num_threads(1)
STEPS = 4

# wrap(optimizer, model, passes of a step) returns the wrapped optimizer. what: words for what the tests may expect of it.
Wrapper = collections.namedtuple("Wrapper", "name wrap what")


def method(name, what, **options):
    def wrap(optimizer, model, passes):
        return bf.DistributedOptimizer(optimizer, model, name, **options)

    return Wrapper(" ".join([name, *map(str, options.values())]), wrap, tuple(what.split()))


def combining(kind, what, **options):
    wrap = getattr(bf, f"Distributed{kind}Optimizer")
    return Wrapper(" ".join([kind, *options]), lambda optimizer, model, passes: wrap(
        optimizer, model, num_steps_per_communication=passes, **options), tuple(what.split()))


def win_put(optimizer, model, passes):
    win_put.windows += 1
    wrapped = bf.DistributedWinPutOptimizer(optimizer, model, passes, window_prefix=f"window {win_put.windows}")
    wrapped.force_barrier = True
    return wrapped


win_put.windows = 0


def alone(wrapper):
    """What stands for no wrapper, with the optimizer that the given one needs."""
    return Wrapper("alone", no_wrapper, ("alone", "servers") if "servers" in wrapper.what else ("alone",))


def no_wrapper(optimizer, model, passes):
    return optimizer


def wrappers():
    """All of them, on complete graphs. Their words:

        sgd      with SGD, it is the mean of what the ranks do alone, so it is the same training as with all data
        servers  the last ranks are servers, which apply SGD
        lags     ranks average models of different steps, so that only the sum of the models is known
        double   it takes float64, too
        quasi    it has another momentum
    """
    size = bf.size()
    all_reduce = Wrapper("all-reduce", lambda optimizer, model, passes: bf.DistributedOptimizer(
        optimizer, model, "all-reduce", num_steps_per_communication=passes), ("sgd", "double"))
    ring = Wrapper("straggler-ring", lambda optimizer, model, passes: bf.DistributedOptimizer(
        optimizer, model, "straggler-ring", num_steps_per_communication=passes), ("sgd", "double"))
    made = [all_reduce, ring, method("local-sgd", "sgd double"), method("stochastic", "sgd double", graph="complete"),
            method("stochastic", "sgd double", graph="complete", sync="bsp"),
            method("stochastic", "lags double", graph="complete", sync="async"),
            method("partial", "lags", group_size=max(size, 2)), method("ad-psgd", "lags"),
            combining("GradientAllreduce", "sgd double"), combining("AdaptWithCombine", "double"),
            combining("AdaptThenCombine", "sgd double"), combining("AdaptThenCombine", "sgd double", overlap=True),
            Wrapper("WinPut", win_put, ("double",)),
            combining("DmSGD", "sgd double"), combining("DmSGD", "sgd double", overlap=True),
            combining("QGDmSGD", "quasi double", mu=0), combining("QGDmSGD", "quasi double", mu=0, overlap=True)]
    if size > 1:
        made += [method("parameter-server", "sgd servers"),
                 method("async-parameter-server", "servers", servers=size - 1)]  # with one worker
    return made


class Linear(torch.nn.Module):
    """It computes in float32 if its parameters are smaller: a CPU may have no product of float16 matrices."""

    def __init__(self, inputs, outputs):
        super().__init__()
        made = torch.nn.Linear(inputs, outputs)
        self.weight, self.bias = made.weight, made.bias

    def forward(self, x):
        wide = torch.float64 if self.weight.dtype == torch.float64 else torch.float32
        return torch.nn.functional.linear(x.to(wide), self.weight.to(wide), self.bias.to(wide))


class Model(torch.nn.Module):
    """With tied weights, and a parameter that isn't trained.

    checkpoint: None, or use_reentrant of that around its second block. The first block has one without.
    has_unused: whether there is a parameter that gets no gradient.
    """

    def __init__(self, seed=0, dtype=torch.float32, checkpoint=None, is_tied=True, has_unused=False):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second, self.last = Linear(6, 6), Linear(6, 6), Linear(6, 1)
        self.scale = torch.nn.Parameter(torch.ones(6))
        self.has_unused = has_unused
        if has_unused:
            self.unused = torch.nn.Parameter(torch.ones(3))
        if is_tied:
            self.second.weight = self.first.weight
        self.last.bias.requires_grad_(False)
        self.checkpoint = checkpoint
        self.to(dtype)

    def front(self, x):
        return torch.tanh(self.first(x))

    def back(self, x):
        return torch.tanh(self.second(x) * self.scale)

    def forward(self, x):
        if self.checkpoint is not None:
            x = torch.utils.checkpoint.checkpoint(self.front, x, use_reentrant=False)
            x = torch.utils.checkpoint.checkpoint(self.back, x, use_reentrant=self.checkpoint)
        else:
            x = self.back(self.front(x))
        return self.last(x)


def make_optimizer(model, what=()):
    """SGD for two groups of parameters. Servers have one learning rate and momentum, which no state_dict() has."""
    first = [model.first.weight, model.first.bias, model.scale]
    rest = [p for p in model.parameters() if all(p is not other for other in first)]
    if "servers" in what:
        return torch.optim.SGD([{"params": first}, {"params": rest}], lr=0.1)
    return torch.optim.SGD([{"params": first, "momentum": 0.8}, {"params": rest, "lr": 0.05}], lr=0.1, momentum=0.5,
                           weight_decay=0.02)


def loss_of(model, data, step):
    """The loss of a step with the data of a rank."""
    generator = torch.Generator().manual_seed(1000 * data + step)
    x = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    dtype = next(model.parameters()).dtype
    return ((model(x.to(dtype)) - x.sum(1, keepdim=True).to(dtype)) ** 2).mean()
