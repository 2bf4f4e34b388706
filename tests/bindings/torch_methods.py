"""Common parts of the tests of dunlin.torch.DistributedOptimizer: a model, its training, and numbers that ranks share."""

import mmap
import os
import tempfile

import numpy as np
import torch

import dunlin
import dunlin.torch as bf

torch.set_num_threads(1)
STEPS = 7


def make_model(rank, dtype=torch.float64):
    """With tied weights, and a parameter that isn't trained."""
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model[2].weight = model[0].weight
    model[3].bias.requires_grad_(False)
    return model.to(dtype)


def make_optimizer(model):
    return torch.optim.SGD([{"params": model[:3].parameters()}, {"params": model[3].parameters(), "lr": 0.05}], lr=0.1,
                           momentum=0.5)


def loss_of(model, rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(16, 4, generator=generator, dtype=torch.float64).to(model[0].weight.dtype)
    return ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()


def train(optimizer, model, first=0, last=STEPS):
    for step in range(first, last):
        optimizer.zero_grad()
        loss_of(model, bf.rank(), step).backward()
        optimizer.step()


def wrapped(method, model, **options):
    return bf.DistributedOptimizer(make_optimizer(model), model, method=method, **options)


def servers_of(method, model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)
    return bf.DistributedOptimizer(optimizer, model, method, **options)


def flat(model):
    return torch.cat([p.detach().double().reshape(-1) for p in model.parameters() if p.requires_grad])


def all_reduced(model, flags=0):
    """The bytes that a rank sends in an all-reduce of the trained parameters, and of so many flags for each."""
    trained = [p for p in model.parameters() if p.requires_grad]
    numbers = sum(p.numel() + flags for p in trained)
    return numbers * trained[0].element_size() * 2 * (bf.size() - 1) // bf.size()


class Counters:
    """A number for each rank, which all ranks of the host see at once."""

    def __init__(self, name):
        path = os.path.join(tempfile.gettempdir(), f"dunlin_methods_{os.getppid()}_{name}")
        if bf.rank() == 0:
            with open(path, "wb") as file:
                file.write(bytes(8 * bf.size()))
        dunlin.barrier()
        with open(path, "r+b") as file:
            self.counts = np.frombuffer(mmap.mmap(file.fileno(), 8 * bf.size()), np.int64)
        dunlin.barrier()
        if bf.rank() == 0:
            os.unlink(path)

    def add(self):
        self.counts[bf.rank()] += 1
