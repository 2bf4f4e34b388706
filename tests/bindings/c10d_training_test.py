"""Training with the communication hooks of dunlin.c10d and features of PyTorch: dunlin-run -n N python3 c10d_training_test.py

As in torch_training_test.py, averages of equal ranks change nothing. On a complete graph, ranks with different data train
as one rank with all of it.
"""

import unittest
import warnings

import torch
import torch.distributed as dist

import dunlin
import dunlin.c10d
from torch_features import FEATURES, Feature, Training, train
from torch_wrappers import STEPS, Model, Wrapper, alone, loss_of, make_optimizer

warnings.simplefilter("ignore")


def hooked(name, make, hook, what=""):
    def wrap(model):
        made = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0001)
        made.register_comm_hook(make(), hook)
        return made

    return Wrapper(name, wrap, ("module", "double", *what.split()))


def hooks():
    ranks = dist.get_world_size()
    c10d = dunlin.c10d
    return [hooked("neighbors", lambda: c10d.GossipState(dunlin.graph.complete(ranks)), c10d.gossip_hook, "sgd"),
            hooked("one peer", c10d.GossipState, c10d.gossip_hook),
            hooked("straggler ring", c10d.StragglerRingState, c10d.straggler_ring_hook, "sgd")]


class Hooks(unittest.TestCase):
    def check(self, found, expected, is_exact):
        for p, q in zip(found, expected, strict=True):
            digits = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[p.dtype]
            self.assertTrue(torch.equal(p, q) if is_exact else torch.allclose(p, q, rtol=digits, atol=digits),
                            (p - q).abs().max())

    def test_features(self):
        for feature in FEATURES:
            if feature.model.get("has_unused"):
                continue  # DistributedDataParallel expects all gradients
            expected = None
            for wrapper in hooks():
                with self.subTest(wrapper=wrapper.name, feature=feature.name):
                    expected = expected or train(feature, alone(wrapper))
                    self.check(train(feature, wrapper), expected, dist.get_world_size() == 1)

    def test_a_complete_graph_is_one_rank_with_all_data(self):
        for wrapper in hooks():
            if "sgd" not in wrapper.what:
                continue
            found = train(Feature("", dtype=torch.float64), wrapper, dist.get_rank())
            model = Model(dtype=torch.float64)
            optimizer = make_optimizer(model)
            for step in range(STEPS):
                optimizer.zero_grad()
                losses = [loss_of(model, rank, step) for rank in range(dist.get_world_size())]
                (sum(losses) / len(losses)).backward()
                optimizer.step()
            self.check(found, [p.detach() for p in model.parameters()], False)

    def test_small_floats_are_averaged_in_float32(self):
        for wrapper in hooks():
            if "sgd" not in wrapper.what:
                continue
            for dtype in (torch.bfloat16, torch.float16):
                model = torch.nn.Linear(2, 2, bias=False).to(dtype)
                value = 256.0 if dist.get_rank() == 0 else 1.0  # in bfloat16, 256 + 1 is 256
                forward = wrapper.wrap(Scaled(model.weight))
                forward(torch.tensor(value)).backward()
                mean = torch.tensor((256.0 + dist.get_world_size() - 1) / dist.get_world_size())
                self.assertTrue((model.weight.grad == mean.to(dtype)).all(), model.weight.grad)

    def test_a_state_serves_one_model(self):
        for make, hook in ((dunlin.c10d.GossipState, dunlin.c10d.gossip_hook),
                           (dunlin.c10d.StragglerRingState, dunlin.c10d.straggler_ring_hook)):
            state = make()
            models = [torch.nn.parallel.DistributedDataParallel(Model()) for _ in range(2)]
            for model in models:
                model.register_comm_hook(state, hook)
            for _ in range(3):
                loss_of(models[0], 0, 0).backward()
            with self.assertRaisesRegex(Exception, "another model already"):
                loss_of(models[1], 0, 0).backward()
            with self.assertRaisesRegex(RuntimeError, "once"):
                models[0].register_comm_hook(make(), hook)

    def test_graphs_that_do_not_fit(self):
        ranks = dist.get_world_size()
        with self.assertRaisesRegex(ValueError, f"{ranks + 1} nodes, but there are {ranks} ranks"):
            dunlin.c10d.GossipState(dunlin.graph.complete(ranks + 1))
        if ranks > 1:
            with self.assertRaisesRegex(ValueError, "not strongly connected"):
                dunlin.c10d.GossipState(dunlin.graph.from_edges(ranks, [(0, 1)]))


class Scaled(torch.nn.Module):
    """Its parameters' gradients are what it is called with."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, factor):
        return (self.weight.float() * factor).sum()


if __name__ == "__main__":
    dist.init_process_group("dunlin")
    unittest.main()
