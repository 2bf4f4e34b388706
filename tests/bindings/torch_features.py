"""How programs train: features of PyTorch, and a training with one of them, by any optimizer."""

import contextlib
import io

import torch

import dunlin
from torch_wrappers import STEPS, Model, alone, loss_of, make_optimizer

HAS_SCALER = hasattr(torch.amp, "GradScaler") if hasattr(torch, "amp") else False


class Scaler:
    """A GradScaler, which PyTorch 1.13 has for GPUs only. As that one, it changes gradients without a new version."""

    def __init__(self, *_, init_scale=1024.0, **__):
        self.factor = init_scale
        self.found = None

    def scale(self, loss):
        return loss * self.factor

    def unscale_(self, optimizer):
        gradients = [p.grad.data for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.found = torch.tensor(float(not all(gradient.isfinite().all() for gradient in gradients)))
        for gradient in gradients:
            gradient.mul_(1 / self.factor)

    def _found_inf_per_device(self, optimizer):
        return {torch.device("cpu"): self.found}

    def step(self, optimizer):
        if self.found is None:
            self.unscale_(optimizer)
        if self.found == 0:
            optimizer.step()
        self.found = None

    def update(self):
        pass


def make_scaler():
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6) if HAS_SCALER else Scaler()


class Feature:
    """How a program trains."""

    def __init__(self, name, passes=1, clip=None, scaler=False, infinite=None, resumes=False, compiles=None,
                 **model):
        self.name = name
        self.passes = passes
        self.clip = clip
        self.scaler = scaler
        self.infinite = infinite  # the step in which a gradient is infinite
        self.resumes = resumes  # after STEPS // 2 steps, from files
        self.compiles = compiles  # "model": before the model is wrapped, "after": then
        self.model = model

    def fits(self, wrapper):
        return self.model.get("dtype") is not torch.float64 or "double" in wrapper.what


FEATURES = [
    Feature("groups, tied weights"),
    Feature("a parameter without gradients", has_unused=True),
    Feature("float64", dtype=torch.float64),
    Feature("float16", dtype=torch.float16),
    Feature("bfloat16", dtype=torch.bfloat16),
    Feature("accumulation", passes=2),
    Feature("clipping", clip=0.1),
    Feature("clipping of accumulated gradients", passes=2, clip=0.1, has_unused=True),
    Feature("checkpoint", checkpoint=False),
    Feature("reentrant checkpoint", checkpoint=True, is_tied=False),
    Feature("GradScaler", scaler=True),
    Feature("GradScaler and clipping", scaler=True, clip=0.1),
    Feature("infinite gradient", scaler=True, infinite=2),
    Feature("infinite gradient in the first step", scaler=True, infinite=0),
    Feature("state_dict", resumes=True),
]
COMPILED = [Feature("compiled", compiles="model"), Feature("compiled later", compiles="after"),
            Feature("compiled, checkpoint, accumulation", compiles="model", checkpoint=False, passes=2)]


class Training:
    """A model, and the optimizer that trains it, wrapped or not."""

    def __init__(self, feature, wrapper, seed=0, data=0):
        self.feature = feature
        self.data = data
        self.model = Model(seed, **feature.model)
        self.forward = torch.compile(self.model, backend="aot_eager") if feature.compiles else self.model
        given = self.forward if feature.compiles == "model" else self.model
        self.optimizer = make_optimizer(self.model, wrapper.what)
        if "module" in wrapper.what:
            self.forward = wrapper.wrap(self.model)
        else:
            self.optimizer = wrapper.wrap(self.optimizer, given, feature.passes)
        self.scaler = make_scaler() if feature.scaler else None
        self.waits = "alone" not in wrapper.what and "servers" not in wrapper.what

    def step(self, step):
        feature, optimizer, model = self.feature, self.optimizer, self.model
        optimizer.zero_grad()
        for part in range(feature.passes):
            is_last = part == feature.passes - 1
            with contextlib.nullcontext() if is_last or not hasattr(self.forward, "no_sync") else self.forward.no_sync():
                loss = loss_of(self.forward, self.data, step * feature.passes + part) / feature.passes
                if step == feature.infinite:
                    loss = loss * float("inf")
                (self.scaler.scale(loss) if self.scaler else loss).backward()
        if hasattr(optimizer, "synchronize") and self.waits and model.has_unused:
            optimizer.synchronize()
        if self.scaler and feature.clip:
            self.scaler.unscale_(optimizer)
        if feature.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), feature.clip)
        if self.scaler:
            self.scaler.step(optimizer)
            self.scaler.update()
        else:
            optimizer.step()
        if self.waits:
            dunlin.barrier()

    def run(self, first, last):
        if getattr(self.optimizer, "is_server", False):
            self.optimizer.serve()
        else:
            for step in range(first, last):
                self.step(step)
        return self

    def leave(self):
        if hasattr(self.optimizer, "leave"):
            self.optimizer.leave()

    def saved(self):
        file = io.BytesIO()
        torch.save([self.model.state_dict(), self.optimizer.state_dict()], file)
        file.seek(0)
        return file

    def load(self, file):
        model, optimizer = torch.load(file)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


def train_both(wrapper, make, steps, step):
    """The models that the optimizer make(model) trains with the wrapper and alone, by step(model, optimizer, number,
    is_wrapped).
    """
    models = []
    for one in (wrapper, alone(wrapper)):
        model = Model()
        optimizer = one.wrap(make(model), model, 1)
        for number in range(steps):
            optimizer.zero_grad()
            step(model, optimizer, number, one is wrapper)
            if one is wrapper:
                dunlin.barrier()
        if one is wrapper:
            optimizer.leave()
        models.append(model)
    return models


def train(feature, wrapper, data=0):
    """The parameters of this rank's model after the training, or None for a server."""
    training = Training(feature, wrapper, data=data).run(0, STEPS // 2 if feature.resumes else STEPS)
    training.leave()
    if feature.resumes:
        saved = training.saved()
        training = Training(feature, wrapper, seed=1, data=data)
        training.load(saved)
        training.run(STEPS // 2, STEPS)
        training.leave()
    if getattr(training.optimizer, "is_server", False):
        return None
    return [p.detach() for p in training.model.parameters()]
