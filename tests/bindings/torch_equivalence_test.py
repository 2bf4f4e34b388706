"""What the wrappers of dunlin.torch have to be equal to: dunlin-run -n N python3 torch_equivalence_test.py

On a complete graph they are synchronous SGD, and averages of float16 and bfloat16 are rounded once.
"""

import logging
import unittest

import torch

import dunlin
import dunlin.torch as bf
from dunlin.torch import CommunicationType
from torch_features import Feature, make_scaler, train, train_both
from torch_wrappers import STEPS, Model, combining, loss_of, make_optimizer, wrappers


def setUpModule():
    logging.disable(logging.WARNING)  # steps that do not overlap
    bf.init()
    bf.set_topology(bf.FullyConnectedGraph(bf.size()))
    bf.set_machine_topology(bf.FullyConnectedGraph(bf.machine_size()))


def mean(values):
    return sum(values) / len(values)


class Synchronous(unittest.TestCase):
    def test_a_complete_graph_is_one_rank_with_all_data(self):
        for wrapper in wrappers():
            if "sgd" not in wrapper.what:
                continue
            with self.subTest(wrapper=wrapper.name):
                dtype = torch.float64 if "double" in wrapper.what else torch.float32
                found = train(Feature("", dtype=dtype), wrapper, bf.rank())
                model = Model(dtype=dtype)
                optimizer = make_optimizer(model, wrapper.what)
                for step in range(STEPS):
                    optimizer.zero_grad()
                    workers = bf.size() - ("servers" in wrapper.what)
                    mean([loss_of(model, worker, step) for worker in range(workers)]).backward()
                    optimizer.step()
                if found is not None:
                    for p, q in zip(found, model.parameters(), strict=True):
                        digits = 1e-12 if dtype == torch.float64 else 1e-5
                        self.assertTrue(torch.allclose(p, q, rtol=digits, atol=digits), (p - q).abs().max())

    def test_the_mean_of_models_follows_the_mean_of_gradients(self):
        """Of gradients that don't depend on the models, also where ranks average models of different steps."""
        for wrapper in wrappers():
            if "quasi" in wrapper.what or "servers" in wrapper.what or "async" in wrapper.name:
                continue
            with self.subTest(wrapper=wrapper.name):
                models = [Model(rank) for rank in range(bf.size())]
                expected = [mean([p.detach() for p in same]).clone().requires_grad_(same[0].requires_grad)
                            for same in zip(*(model.parameters() for model in models))]
                model = models[bf.rank()]
                if wrapper.name.split()[0] in ("all-reduce", "straggler-ring", "GradientAllreduce"):
                    model.load_state_dict(models[0].state_dict())
                    expected = [p.detach().clone().requires_grad_(p.requires_grad) for p in model.parameters()]
                plain = torch.optim.SGD(expected, lr=0.1, momentum=0.5)
                optimizer = wrapper.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), model, 1)
                for step in range(STEPS):
                    for p, q in zip(model.parameters(), expected, strict=True):
                        if p.requires_grad:
                            p.grad = torch.full_like(p, float(bf.rank() + step))
                            q.grad = torch.full_like(q, mean(range(bf.size())) + step)
                    optimizer.step()
                    plain.step()
                    dunlin.barrier()  # otherwise a put may come earlier than an update
                optimizer.leave()
                for p, q in zip(model.parameters(), expected, strict=True):
                    self.assertTrue(torch.allclose(bf.allreduce(p), q, rtol=1e-5, atol=1e-5), (p - q).abs().max())


class SmallFloats(unittest.TestCase):
    def test_averages_are_rounded_once(self):
        """In bfloat16, 256 + 1 is 256, so a sum in steps loses all ones. In float16, 60000 + 60000 is infinite."""
        cases = [wrapper for wrapper in wrappers() if "lags" not in wrapper.what and "servers" not in wrapper.what]
        cases += [combining(kind, "", communication_type=average)
                  for kind in ("AdaptWithCombine", "AdaptThenCombine", "DmSGD")
                  for average in (CommunicationType.allreduce, CommunicationType.hierarchical_neighbor_allreduce)]
        for wrapper in cases:
            for dtype, first, others in ((torch.bfloat16, 256.0, 1.0), (torch.float16, 60000.0, 60000.0),
                                         (torch.float16, 2048.0, 1.0)):
                with self.subTest(wrapper=wrapper.name, dtype=dtype):
                    model = torch.nn.Linear(2, 2, bias=False).to(dtype)
                    own = first if bf.rank() == 0 else others
                    is_of_gradients = wrapper.name in ("all-reduce", "straggler-ring", "GradientAllreduce")
                    torch.nn.init.constant_(model.weight, 0.0 if is_of_gradients else own)
                    optimizer = wrapper.wrap(torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5), model, 1)
                    model.weight.grad = torch.full_like(model.weight, -own if is_of_gradients else 0.0)
                    optimizer.step()
                    optimizer.leave()
                    average = torch.tensor((first + (bf.size() - 1) * others) / bf.size()).to(dtype)
                    self.assertEqual(model.weight.dtype, dtype)
                    self.assertTrue((model.weight == average).all(), model.weight)


class Infinite(unittest.TestCase):
    def test_what_one_rank_finds_all_ranks_skip(self):
        """A GradScaler of one rank finds an infinite gradient. All ranks skip the step, and continue together."""
        for wrapper in wrappers():
            if "servers" in wrapper.what:
                continue
            with self.subTest(wrapper=wrapper.name):
                scalers = {True: make_scaler(), False: make_scaler()}

                def step(model, optimizer, number, is_wrapped):
                    scaler = scalers[is_wrapped]
                    loss = scaler.scale(loss_of(model, 0, number))
                    is_bad = number == 2 and (not is_wrapped or bf.rank() == bf.size() - 1)
                    (loss * float("inf") if is_bad else loss).backward()
                    scaler.unscale_(optimizer)
                    if is_wrapped:
                        for found in scaler._found_inf_per_device(optimizer).values():
                            bf.allreduce_(found, average=False)
                    scaler.step(optimizer)
                    scaler.update()

                models = train_both(wrapper, make_optimizer, STEPS, step)
                for p, q in zip(*(model.parameters() for model in models), strict=True):
                    digits = 0.5 if "lags" in wrapper.what else 1e-5
                    self.assertTrue(torch.allclose(p, q, rtol=digits, atol=digits), (p - q).abs().max())


if __name__ == "__main__":
    unittest.main()
