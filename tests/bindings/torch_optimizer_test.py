"""dunlin.torch's optimizers: dunlin-run -n N python3 torch_optimizer_test.py

Every rank trains its model with the others, and then all models alone, step by step as the papers have it; both have to
come to the same parameters.
"""

import time
import unittest

import torch

import dunlin.torch as bf
from dunlin.torch import CommunicationType

torch.set_num_threads(1)
STEPS = 6


def setUpModule():
    bf.init()


def make_model(rank):
    torch.manual_seed(rank)
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()


def make_optimizer(model):
    return torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.05}], lr=0.1,
                           momentum=0.5)


def loss_of(model, rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(16, 5, generator=generator, dtype=torch.float64)
    return ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()


def mixed(tensors, rank, topology):
    own, others = bf.GetRecvWeights(topology, rank)
    return own * tensors[rank] + sum(weight * tensors[other] for other, weight in others.items())


def simulate(kind, mix, every=1):
    """All ranks' models after STEPS steps. mix(tensors by rank, rank) returns the new tensor of that rank."""
    models = [make_model(rank) for rank in range(bf.size())]
    optimizers = [make_optimizer(model) for model in models]

    def combine(read, write):
        for parameters in zip(*(model.parameters() for model in models)):
            before = [read(p).clone() for p in parameters]
            for rank, parameter in enumerate(parameters):
                write(parameter, mix(before, rank))

    for step in range(STEPS):
        is_time = (step + 1) % every == 0
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
        with torch.no_grad():
            if is_time and kind == "with":
                combine(lambda p: p, lambda p, value: p.copy_(value))
            if is_time and kind == "gradient":
                combine(lambda p: p.grad, lambda p, value: p.grad.copy_(value))
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            if is_time and kind == "then":
                combine(lambda p: p, lambda p, value: p.copy_(value))
    return models[bf.rank()]


def train(wrap, prepare=lambda optimizer, step: None):
    model = make_model(bf.rank())
    optimizer = wrap(make_optimizer(model), model)
    for step in range(STEPS):
        prepare(optimizer, step)
        optimizer.zero_grad()
        loss_of(model, bf.rank(), step).backward()
        optimizer.step()
    return model


class Optimizers(unittest.TestCase):
    def assert_same(self, model, expected):
        for p, q in zip(model.parameters(), expected.parameters()):
            self.assertTrue(torch.allclose(p, q, rtol=1e-12, atol=1e-13), f"{(p - q).abs().max()}")

    def test_combining(self):
        topology = bf.RingGraph(bf.size(), 2)
        bf.set_topology(topology, is_weighted=True)
        bf.set_machine_topology(bf.ExponentialGraph(bf.machine_size()))
        average = lambda tensors, rank: sum(tensors) / len(tensors)
        neighbors = lambda tensors, rank: mixed(tensors, rank, topology)

        def machines(tensors, rank):
            per = bf.local_size()
            means = [sum(tensors[first:first + per]) / per for first in range(0, bf.size(), per)]
            return mixed(means, rank // per, bf.ExponentialGraph(bf.machine_size()))

        kinds = [(CommunicationType.neighbor_allreduce, neighbors), (CommunicationType.allreduce, average),
                 (CommunicationType.hierarchical_neighbor_allreduce, machines),
                 (CommunicationType.empty, lambda tensors, rank: tensors[rank])]
        for kind, mix in kinds:
            for every in (1, 2):
                for order, wrap in [("with", bf.DistributedAdaptWithCombineOptimizer),
                                    ("then", bf.DistributedAdaptThenCombineOptimizer)]:
                    model = train(lambda optimizer, model: wrap(optimizer, model, kind, every))
                    self.assert_same(model, simulate(order, mix, every))

    def test_gradient_allreduce(self):
        average = lambda tensors, rank: sum(tensors) / len(tensors)
        model = train(bf.DistributedGradientAllreduceOptimizer)
        self.assert_same(model, simulate("gradient", average))

    def test_gradients_of_several_passes(self):
        average = torch.nn.Linear(3, 1).double()
        torch.nn.init.zeros_(average.weight)
        torch.nn.init.zeros_(average.bias)
        optimizer = bf.DistributedGradientAllreduceOptimizer(torch.optim.SGD(average.parameters(), lr=1.0), average, 3)
        for _ in range(2):
            optimizer.zero_grad()
            for part in range(3):
                average(torch.full((1, 3), float(bf.rank() + part), dtype=torch.float64)).sum().backward()
            optimizer.step()
        expected = -2 * (3 * (bf.size() - 1) / 2 + 3)
        self.assertTrue(torch.allclose(average.weight, torch.full((1, 3), expected, dtype=torch.float64)))
        self.assertAlmostEqual(average.bias.item(), -6)

    def test_a_step_that_could_not_communicate_is_made_up_for(self):
        if bf.size() < 2:
            return  # it needs neighbors
        model = make_model(bf.rank())
        optimizer = bf.DistributedAdaptWithCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model)
        optimizer.enable_topo_check = True
        optimizer.self_weight, optimizer.src_weights, optimizer.dst_weights = 0.0, {bf.rank(): 1.0}, []
        with self.assertRaises(ValueError):
            loss_of(model, 0, 0)
        after = (bf.rank() + 1) % bf.size()
        optimizer.src_weights, optimizer.dst_weights = {after: 1.0}, [(bf.rank() - 1) % bf.size()]
        loss_of(model, 0, 0).backward()
        optimizer.step()
        self.assert_same(model, make_model(after))

    def test_weights_by_step(self):
        """The one-peer exponential graph, set before each step, and changes of the communication type."""
        if bf.size() < 2:
            return  # it needs neighbors
        generators = [bf.GetDynamicOnePeerSendRecvRanks(bf.ExponentialGraph(bf.size()), rank) for rank in range(bf.size())]
        steps = [[next(generator) for generator in generators] for _ in range(STEPS)]

        def prepare(optimizer, step):
            send, receive = steps[step][bf.rank()]
            optimizer.dst_weights = send
            optimizer.src_weights = {rank: 1 / (len(receive) + 1) for rank in receive}
            optimizer.self_weight = 1 / (len(receive) + 1)
            optimizer.communication_type = (CommunicationType.allreduce if step == STEPS - 1 else
                                            CommunicationType.neighbor_allreduce)

        calls = iter(range(10**9))
        counts = {}

        def mix(tensors, rank):
            # Parameter by parameter, rank by rank, step by step.
            number = next(calls)
            step = number // (bf.size() * 4)
            counts[step] = counts.get(step, 0) + 1
            if step == STEPS - 1:
                return sum(tensors) / len(tensors)
            receive = steps[step][rank][1]
            return (tensors[rank] + sum(tensors[source] for source in receive)) / (len(receive) + 1)

        model = train(bf.DistributedAdaptThenCombineOptimizer, prepare)
        self.assert_same(model, simulate("then", mix))
        self.assertEqual(set(counts.values()), {bf.size() * 4})

    def test_weights_have_their_older_names_too(self):
        """Programs for BlueFog before 0.3 set other attributes, which must not be ignored."""
        model = make_model(0)
        optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for older, name in (("neighbor_weights", "src_weights"), ("send_neighbors", "dst_weights"),
                            ("neighbor_machine_weights", "src_machine_weights"),
                            ("send_neighbor_machines", "dst_machine_weights")):
            setattr(optimizer, older, {0: 0.5})
            self.assertEqual(getattr(optimizer, name), {0: 0.5})
            self.assertEqual(getattr(optimizer, older), {0: 0.5})

    def test_win_put(self):
        """No rank waits, so results vary: all models learn, and stay near one another."""
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        model = make_model(0)
        optimizer = bf.DistributedWinPutOptimizer(torch.optim.Adam(model.parameters(), lr=0.02), model, window_prefix="test ")
        self.assertEqual(len(bf.get_current_created_window_names()), 1)
        for step in range(200):
            optimizer.zero_grad()
            loss = loss_of(model, bf.rank(), step)
            loss.backward()
            optimizer.step()
            time.sleep(0.0002 * bf.rank())
        bf.barrier()
        optimizer.unregister_window()
        self.assertEqual(bf.get_current_created_window_names(), [])
        losses = bf.allgather(loss_of(model, 99, 0).detach())
        self.assertLess(losses.max().item(), 1.5)
        for parameter in model.parameters():
            mean = bf.allreduce(parameter)
            self.assertLess((parameter - mean).norm().item(), 0.2 * mean.norm().item() + 0.05)

    def test_a_wrapped_optimizer_is_one_of_its_class(self):
        model = make_model(0)
        plain = torch.optim.Adam(model.parameters(), lr=0.5)
        torch.optim.lr_scheduler.StepLR(plain, 1)
        wrapped = bf.DistributedGradientAllreduceOptimizer(plain, model)
        self.assertIsInstance(wrapped, torch.optim.Adam)
        scheduler = torch.optim.lr_scheduler.StepLR(wrapped, 1, gamma=0.1)
        loss_of(model, 0, 0).backward()
        wrapped.step()
        scheduler.step()
        self.assertAlmostEqual(wrapped.param_groups[0]["lr"], 0.05)
        self.assertEqual(len(wrapped.state_dict()["state"]), 4)
        for arguments in [(plain,), (wrapped, model), (plain, model, 0), (plain, torch.nn.Linear(2, 2))]:
            with self.assertRaises((ValueError, TypeError)):
                bf.DistributedGradientAllreduceOptimizer(*arguments)


    def test_loading_a_state_keeps_schedulers(self):
        model = make_model(0)
        plain = torch.optim.Adam(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.1)
        wrapped = bf.DistributedGradientAllreduceOptimizer(plain, model)
        loss_of(model, 0, 0).backward()
        wrapped.step()
        saved = wrapped.state_dict()
        saved["param_groups"][0]["betas"] = (0.8, 0.9)
        wrapped.load_state_dict(saved)
        self.assertEqual(wrapped.param_groups[0]["betas"], (0.8, 0.9))
        self.assertEqual(len(wrapped.state_dict()["state"]), 4)
        scheduler.step()
        self.assertAlmostEqual(wrapped.param_groups[0]["lr"], 0.05)
        for ours, original in zip(wrapped.param_groups, plain.param_groups):
            self.assertIs(ours, original)
        self.assertIs(wrapped.state, plain.state)


class Parameters(unittest.TestCase):
    def test_broadcast(self):
        root = bf.size() - 1
        model, expected = make_model(bf.rank()), make_model(root)
        bf.broadcast_parameters(model.state_dict(), root)
        for p, q in zip(model.parameters(), expected.parameters()):
            self.assertTrue(torch.equal(p, q))
        other = make_model(bf.rank())
        bf.broadcast_parameters(other.named_parameters(), root)
        self.assertTrue(torch.equal(other[0].weight, expected[0].weight))
        norm = torch.nn.BatchNorm1d(3)
        norm.num_batches_tracked += bf.rank()
        bf.broadcast_parameters(norm.state_dict(), root)
        self.assertEqual(norm.num_batches_tracked.item(), root)
        with self.assertRaises(ValueError):
            bf.broadcast_parameters(torch.ones(3), root)

    def test_broadcast_of_a_model_that_is_not_contiguous(self):
        root = bf.size() - 1
        models = [torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last) for _ in range(2)]
        for rank, model in zip((bf.rank(), root), models):
            torch.nn.init.constant_(model.weight, float(rank))
            torch.nn.init.constant_(model.bias, float(rank))
        bf.broadcast_parameters(models[0].state_dict(), root)
        self.assertTrue(torch.equal(models[0].weight, models[1].weight))
        self.assertTrue(models[0].weight.is_contiguous(memory_format=torch.channels_last))

    def test_average(self):
        model = make_model(bf.rank())
        bf.allreduce_parameters(model.state_dict())
        expected = sum(make_model(rank)[0].weight for rank in range(bf.size())) / bf.size()
        self.assertTrue(torch.allclose(model[0].weight, expected))

    def test_tied_ones_are_averaged_once(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).double()
        model[1].weight = model[0].weight
        torch.nn.init.constant_(model[0].weight, float(bf.rank()))
        bf.allreduce_parameters(model.state_dict())
        self.assertTrue(torch.allclose(model[0].weight, torch.full((3, 3), (bf.size() - 1) / 2, dtype=torch.float64)))

    def test_optimizer_state(self):
        root = bf.size() - 1
        for make in (torch.optim.Adam, torch.optim.SGD, lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)):
            model = make_model(0)
            optimizer = make(model.parameters(), lr=0.1 * (bf.rank() + 1))
            # Only the root's optimizer has state.
            if bf.rank() == root:
                loss_of(model, 0, 0).backward()
                optimizer.step()
            bf.broadcast_parameters(model.state_dict(), root)
            bf.broadcast_optimizer_state(optimizer, root)
            self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.1 * (root + 1))
            optimizer.zero_grad()
            loss_of(model, 0, 1).backward()
            optimizer.step()
            weights = bf.allgather(model[0].weight.detach().reshape(1, -1))
            self.assertTrue(torch.equal(weights, weights[:1].expand_as(weights)))
        with self.assertRaises(ValueError):
            bf.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root)


if __name__ == "__main__":
    unittest.main()
