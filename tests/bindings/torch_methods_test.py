"""dunlin.torch.DistributedOptimizer, on every rank of a job: dunlin-run -n N python3 torch_methods_test.py

Every rank trains its model with the others, and then all models alone, step by step as the methods have it; both have
to come to the same parameters.
"""

import copy
import os
import tempfile
import time
import unittest

import numpy as np
import torch

import dunlin
import dunlin.torch as bf
from torch_methods import STEPS, Counters, all_reduced, flat, loss_of, make_model, make_optimizer, servers_of, train, wrapped

# The methods, with options that change what they do.
ALL = [("all-reduce", {}), ("straggler-ring", {}),
       ("local-sgd", {}), ("local-sgd", {"section_length": 3}), ("local-sgd", {"overlap": True}),
       ("stochastic", {}), ("stochastic", {"overlap": True, "graph": "complete", "depth": 3}),
       ("stochastic", {"sync": "bsp"}), ("stochastic", {"sync": "async"}), ("partial", {}),
       ("partial", {"groups": "static", "section_length": 2}), ("partial", {"groups": "random", "group_size": 2}),
       ("partial", {"overlap": True}), ("ad-psgd", {}), ("ad-psgd", {"graph": "ring", "seed": 7})]


def setUpModule():
    bf.init()


def simulate(mix, is_due, overlap=False, dtype=torch.float64):
    """This rank's model after STEPS steps. mix(step, tensors by rank, rank) returns that rank's average after a step, and
    is_due(step) whether there is one."""
    models = [make_model(rank, dtype) for rank in range(bf.size())]
    optimizers = [make_optimizer(model) for model in models]

    @torch.no_grad()
    def average(step):
        for parameters in zip(*(model.parameters() for model in models)):
            if parameters[0].requires_grad:
                before = [p.clone() for p in parameters]
                for rank, parameter in enumerate(parameters):
                    parameter.copy_(mix(step, before, rank))

    pending = False
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
        if pending:
            average(step - 1)
            pending = False
        for optimizer in optimizers:
            optimizer.step()
        pending = is_due(step)
        if pending and not overlap:
            average(step)
            pending = False
    if pending:
        average(STEPS - 1)
    return models[bf.rank()]


def mean(tensors):
    return sum(tensors) / len(tensors)


def mean_of_all(step, tensors, rank):
    return mean(tensors)


def along(graph, weighting="uniform"):
    def mix(step, tensors, rank):
        own, others = graph.weights(rank, weighting)
        return own * tensors[rank] + sum(weight * tensors[other] for other, weight in others.items())

    return mix


class Methods(unittest.TestCase):
    def assert_near(self, model, expected, tolerance=1e-12):
        for p, q in zip(model.parameters(), expected.parameters()):
            self.assertTrue(torch.allclose(p, q, rtol=tolerance, atol=tolerance), f"{(p - q).abs().max()}")

    def test_one_rank_is_the_plain_optimizer_bit_for_bit(self):
        if bf.size() > 1:
            return
        kinds = [make_optimizer, lambda model: torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1)]
        for method, options in ALL:
            for make in kinds:
                for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                    if dtype == torch.float64 and method in ("partial", "ad-psgd"):
                        continue
                    if dtype == torch.float16 and make is not make_optimizer:
                        continue  # PyTorch's Adam divides by its epsilon, which is 0 in float16
                    with self.subTest(method=method, options=options, dtype=dtype):
                        plain, model = make_model(0, dtype), make_model(0, dtype)
                        expected = make(plain)
                        optimizer = bf.DistributedOptimizer(make(model), model, method, **options)
                        generator = torch.Generator().manual_seed(1)
                        for _ in range(STEPS):
                            for p, q in zip(plain.parameters(), model.parameters()):
                                if p.requires_grad:
                                    # Matrices of float16 can't be multiplied on a CPU.
                                    p.grad = torch.randn(p.shape, generator=generator).to(dtype)
                                    q.grad = p.grad.clone()
                            expected.step()
                            optimizer.step()
                        optimizer.leave()
                        for p, q in zip(plain.parameters(), model.parameters()):
                            self.assertTrue(torch.equal(p, q))

    def test_a_complete_graph_is_the_mean_of_all(self):
        cases = [("local-sgd", {}), ("stochastic", {"graph": "complete"})]
        for method, options in cases:
            for overlap in (False, True):
                for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
                    with self.subTest(method=method, overlap=overlap, dtype=dtype):
                        model = make_model(bf.rank(), dtype)
                        optimizer = wrapped(method, model, overlap=overlap, **options)
                        train(optimizer, model)
                        optimizer.leave()
                        self.assert_near(model, simulate(mean_of_all, lambda step: True, overlap, dtype), tolerance)
        # With parameters that were equal at first, it is what averaging gradients is.
        model, other = make_model(0), make_model(0)
        optimizer, synchronous = wrapped("stochastic", model, graph="complete"), wrapped("all-reduce", other)
        train(optimizer, model)
        train(synchronous, other)
        optimizer.leave()
        self.assert_near(model, other)
        self.assertEqual(synchronous.statistics(), {"averages": STEPS, "bytes_sent": STEPS * all_reduced(other, 1)})

    def test_the_straggler_ring_averages_gradients(self):
        for options in ({}, {"late": "never"}, {"late": "fixed", "step": 1e-6, "num_steps_per_communication": 1}):
            with self.subTest(options):
                model, other = make_model(0), make_model(0)
                optimizer, synchronous = wrapped("straggler-ring", model, **options), wrapped("all-reduce", other)
                train(optimizer, model)
                train(synchronous, other)
                statistics = optimizer.statistics()
                optimizer.leave()
                synchronous.leave()
                self.assert_near(model, other)
                self.assertEqual(statistics["averages"], STEPS)
                self.assertEqual(statistics["all_reduces"], STEPS)
                self.assertEqual(statistics["bytes_sent"] > 0, bf.size() > 1)
        with self.assertRaises(ValueError):
            wrapped("straggler-ring", make_model(0), late="sometimes")

    def test_parameter_servers_take_the_steps(self):
        if bf.size() == 1:
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "1 servers of 1 ranks"):
                servers_of("parameter-server", make_model(0, torch.float32))
            return
        cases = [("parameter-server", count) for count in range(1, bf.size())]
        for method, count in cases + [("async-parameter-server", bf.size() - 1)]:  # with one worker, both do the same
            with self.subTest(method=method, servers=count):
                workers = bf.size() - count
                model, alone = make_model(0, torch.float32), make_model(0, torch.float32)
                optimizer = servers_of(method, model, servers=count)
                self.assertEqual(optimizer.is_server, bf.rank() >= workers)
                if optimizer.is_server:
                    with self.assertRaisesRegex(dunlin.InvalidArgumentError, "is a server"):
                        optimizer.step()
                    optimizer.serve()
                    optimizer.leave()
                    self.assertEqual(optimizer.statistics()["updates"], STEPS)
                    continue
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
                expected = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)
                halved = torch.optim.lr_scheduler.StepLR(expected, 2, gamma=0.5)
                for step in range(STEPS):
                    train(optimizer, model, step, step + 1)
                    scheduler.step()
                    expected.zero_grad()
                    mean([loss_of(alone, worker, step) for worker in range(workers)]).backward()
                    expected.step()
                    halved.step()
                optimizer.leave()
                self.assert_near(model, alone, 1e-5)

    def test_parameter_servers_know_sgd_only(self):
        model = make_model(0, torch.float32)
        for make, words in (
                (lambda p: torch.optim.Adam(p, lr=0.1), "has to be a torch.optim.SGD"),
                (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), "without nesterov"),
                (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1), "without dampening"),
                (lambda p: torch.optim.SGD([{"params": p}], lr=0.1, maximize=True), "without maximize")):
            with self.assertRaisesRegex(ValueError, words):
                bf.DistributedOptimizer(make(model.parameters()), model, "async-parameter-server")
        with self.assertRaisesRegex(ValueError, "one lr for all parameters, not .0.05, 0.1"):
            wrapped("parameter-server", model)

    def test_sections(self):
        for overlap in (False, True):
            model = make_model(bf.rank())
            optimizer = wrapped("local-sgd", model, section_length=3, overlap=overlap)
            train(optimizer, model)
            optimizer.leave()
            self.assert_near(model, simulate(mean_of_all, lambda step: step in (2, 5), overlap))
            self.assertEqual(optimizer.statistics(), {"averages": 2, "bytes_sent": 2 * all_reduced(model)})

    def test_stochastic_averages_along_the_graph(self):
        size = bf.size()
        graphs = ["root-expander", "bidirectional-ring", dunlin.graph.exponential(size)]
        for graph in graphs:
            made = graph if isinstance(graph, dunlin.graph.Graph) else dunlin.graph.make(graph, size)
            weightings = ["uniform"] + (["metropolis"] if made.is_undirected() else [])
            for weighting in weightings:
                for overlap in (False, True):
                    model = make_model(bf.rank())
                    optimizer = wrapped("stochastic", model, graph=graph, weighting=weighting, overlap=overlap)
                    train(optimizer, model)
                    optimizer.synchronize()
                    done = optimizer.statistics()
                    self.assertEqual(done["reduces"], STEPS)
                    edges = len(made.out_neighbors(bf.rank())) if size > 1 else 0
                    self.assertEqual(done["bytes_sent"], STEPS * edges * len(flat(model)) * 8)
                    self.assert_near(model, simulate(along(made, weighting), lambda step: True, overlap))
                    optimizer.leave()

    def test_partial_averages_its_groups(self):
        """By the fixed schedule of groups, for one node: in its second and fourth steps all ranks average."""
        pairs = {1: ([], []), 2: ([], []), 3: ([(1, 2)], [(0, 2)]), 4: ([(2, 3)], [(0, 3)])}[bf.size()]
        everybody = [tuple(range(bf.size()))]
        schedule = [pairs[0], everybody, pairs[1], everybody]

        def mix(step, tensors, rank):
            groups = [group for group in schedule[step % 4] if rank in group]
            return mean([tensors[member] for member in groups[0]]) if groups else tensors[rank]

        for overlap in (False, True):
            model = make_model(bf.rank(), torch.float32)
            optimizer = wrapped("partial", model, groups="static", layout=(1, bf.size()), overlap=overlap)
            train(optimizer, model)
            optimizer.leave()
            self.assert_near(model, simulate(mix, lambda step: True, overlap, torch.float32), 1e-4)

    def test_averages_keep_the_sum_of_models(self):
        """The groups of a generator and the pairs depend on timing. No model is lost, and none counts twice."""
        cases = [("partial", {"groups": groups, "group_size": 2, "overlap": overlap})
                 for groups in ("smart", "random", "buffered", "static") for overlap in (False, True)]
        for method, options in cases + [("ad-psgd", {}), ("ad-psgd", {"graph": "star"})]:
            with self.subTest(method=method, options=options):
                model = make_model(bf.rank(), torch.float32)
                expected = bf.allreduce(flat(model), average=False)
                # A step adds the same to all parameters: -rate * (-rank).
                optimizer = bf.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model, method, **options)
                for step in range(20):
                    for parameter in model.parameters():
                        parameter.grad = torch.full_like(parameter, -bf.rank())
                    optimizer.step()
                    if method == "ad-psgd" and step == 0:
                        dunlin.barrier()  # A rank declines until it has begun its first average.
                optimizer.leave()
                expected += 20 * 0.01 * sum(range(bf.size()))
                found = bf.allreduce(flat(model), average=False)
                self.assertTrue(torch.allclose(found, expected, rtol=1e-4, atol=1e-4), f"{(found - expected).abs().max()}")
                done = optimizer.statistics()
                self.assertEqual(done["iterations"], 20)
                total = dunlin.all_reduce(np.array([done["groups" if method == "partial" else "averages"]]))
                self.assertEqual(total[0] > 0, bf.size() > 1)

    def test_an_average_is_of_one_type_for_all_small_floats(self):
        class Mixed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Parameter(torch.full((3, 5), 1.0 + bf.rank(), dtype=torch.bfloat16))
                self.b = torch.nn.Parameter(torch.full((7,), bf.rank() / 3, dtype=torch.float64))
                self.c = torch.nn.Parameter(torch.full((2, 2), 2048.0 + 2 * bf.rank(), dtype=torch.float16))
                self.d = torch.nn.Parameter(torch.full((), float(bf.rank())))

        for method, options in (("local-sgd", {}), ("stochastic", {"graph": "complete"})):
            model = Mixed()
            optimizer = bf.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model, method, **options)
            optimizer.step()
            optimizer.leave()
            middle = (bf.size() - 1) / 2
            # The sums are beyond what the types hold exactly.
            self.assertTrue(torch.equal(model.a, torch.full((3, 5), 1 + middle).bfloat16()), model.a)
            self.assertTrue(torch.allclose(model.b, torch.full((7,), middle / 3, dtype=torch.float64), rtol=1e-14))
            self.assertTrue(torch.equal(model.c, torch.full((2, 2), 2048 + 2 * middle).half()), model.c)
            self.assertEqual(model.d.item(), middle)
        for method in ("partial", "ad-psgd"):
            with self.assertRaisesRegex(ValueError, f"'{method}' averages .*float32, and not of torch.float64"):
                wrapped(method, make_model(0))
        turning = torch.nn.Linear(2, 2).to(torch.complex64)
        for method in ("local-sgd", "stochastic", "partial", "ad-psgd"):
            with self.assertRaisesRegex(ValueError, "torch.complex64"):
                bf.DistributedOptimizer(torch.optim.SGD(turning.parameters(), lr=0.1), turning, method)

    def test_what_is_tied_frozen_or_not_in_the_optimizer(self):
        model = make_model(bf.rank(), torch.float32)
        frozen, others = model[3].bias.clone(), model[3].weight.clone()
        optimizer = bf.DistributedOptimizer(torch.optim.SGD(model[:3].parameters(), lr=0.1), model, "local-sgd")
        expected = mean([flat(make_model(rank, torch.float32)[:3]) for rank in range(bf.size())])
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.leave()
        self.assertIs(model[0].weight, model[2].weight)
        self.assertEqual(len(flat(model[:3])), 16 + 4 + 4)
        self.assertTrue(torch.allclose(flat(model[:3]), expected, rtol=1e-5))
        self.assertTrue(torch.equal(model[3].bias, frozen) and torch.equal(model[3].weight, others))

    def test_a_state_goes_on_where_it_was_saved(self):
        for method, options in (("local-sgd", {}), ("stochastic", {"overlap": True})):
            model, again = make_model(bf.rank()), make_model(99)
            optimizer = wrapped(method, model, **options)
            train(optimizer, model, 0, 3)
            optimizer.synchronize()
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            train(optimizer, model, 3, STEPS)
            optimizer.leave()
            another = wrapped(method, again, **options)
            again.load_state_dict(saved[0])
            another.load_state_dict(saved[1])
            train(another, again, 3, STEPS)
            another.leave()
            for p, q in zip(model.parameters(), again.parameters()):
                self.assertTrue(torch.equal(p, q))

    def test_a_model_is_wrapped_once(self):
        model = make_model(bf.rank(), torch.float32)
        optimizer = wrapped("partial", model)
        for wrap in (lambda: wrapped("stochastic", model), lambda: wrapped("all-reduce", model),
                     lambda: bf.DistributedAdaptThenCombineOptimizer(make_optimizer(model), model)):
            with self.assertRaisesRegex(ValueError, "wrapped already"):
                wrap()
        with self.assertRaisesRegex(ValueError, "not wrapped yet"):
            bf.DistributedOptimizer(optimizer, model, "partial")
        # Another model, and other parameters of the same one.
        other = make_model(bf.rank(), torch.float32)
        other_half = torch.optim.SGD(other[3].parameters(), lr=0.1)
        wrappers = [bf.DistributedOptimizer(torch.optim.SGD(other[:3].parameters(), lr=0.1), other, "local-sgd"),
                    bf.DistributedOptimizer(other_half, other, "local-sgd")]
        for each in (optimizer, *wrappers):
            each.leave()
            each.leave()
            with self.assertRaisesRegex(RuntimeError, "after leave"):
                each.step()
        optimizer = wrapped("stochastic", model)
        train(optimizer, model, 0, 1)
        optimizer.leave()
        # Models that are gone take their wrappers with them, and hold no new ones back.
        for _ in range(20):
            model = make_model(bf.rank(), torch.float32)
            wrapped("local-sgd", model)

    def test_it_is_an_optimizer_of_its_class(self):
        model = make_model(bf.rank())
        plain = torch.optim.Adam(model.parameters(), lr=0.5)
        optimizer = bf.DistributedOptimizer(plain, model, "local-sgd")
        self.assertIsInstance(optimizer, torch.optim.Adam)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
        calls = []

        def closure():
            calls.append(1)
            optimizer.zero_grad()
            loss = loss_of(model, bf.rank(), 0)
            loss.backward()
            return loss

        self.assertGreater(optimizer.step(closure).item(), 0)
        scheduler.step()
        self.assertEqual(len(calls), 1)
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.05)
        equal = bf.allgather(flat(model).reshape(1, -1))
        self.assertTrue(torch.equal(equal, equal[:1].expand_as(equal)))
        optimizer.leave()

    def test_wrong_arguments(self):
        model = make_model(bf.rank(), torch.float32)
        for method, options, words in (
                ("magic", {}, "no method 'magic'; known are .*'partial'"),
                ("partial", {"graph": "ring"}, "'partial' has no option 'graph'; it has groups, group_size"),
                ("all-reduce", {"overlap": True}, "it has num_steps_per_communication"),
                ("ad-psgd", {"section_length": 2}, "no option"),
                ("local-sgd", {"section_length": 0}, "section_length 0"),
                ("partial", {"section_length": 1.5}, "section_length 1.5"),
                ("stochastic", {"sync": "never"}, "never"), ("stochastic", {"graph": "no such"}, "no such"),
                ("stochastic", {"depth": 0}, "depth"), ("partial", {"groups": "clever"}, "clever"),
                ("ad-psgd", {"graph": "no such"}, "no such")):
            with self.assertRaisesRegex((ValueError, dunlin.InvalidArgumentError), words):
                wrapped(method, model, **options)
        if bf.size() > 1:
            one_way = dunlin.graph.from_edges(bf.size(), [(0, 1)])
            with self.assertRaisesRegex(ValueError, "not strongly connected"):
                wrapped("stochastic", model, graph=one_way)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        with self.assertRaisesRegex(ValueError, "nothing to average"):
            wrapped("local-sgd", model)
        # None of these has wrapped anything.
        wrapped("local-sgd", make_model(0)).leave()

    def test_a_slow_rank_holds_no_other_up(self):
        """Rank 0 makes one step, and another one only after the others have made 50."""
        for method, options in (("stochastic", {"sync": "async", "graph": "complete"}), ("ad-psgd", {})):
            with self.subTest(method=method):
                model = make_model(bf.rank(), torch.float32)
                optimizer = wrapped(method, model, **options)
                train(optimizer, model, 0, 1)
                dunlin.barrier()
                if bf.rank() == 0:
                    dunlin.barrier()
                train(optimizer, model, 1, 2 if bf.rank() == 0 else 51)
                if bf.rank() > 0:
                    dunlin.barrier()
                optimizer.leave()

    def test_a_slow_rank_holds_its_group_up_alone(self):
        """Rank 0 makes one step, and no other one before some rank has made all of its steps. It may be in a group
        meanwhile, whose members wait for it. A group has three ranks at most."""
        if bf.size() < 4:
            return
        model = make_model(bf.rank(), torch.float32)
        optimizer = wrapped("partial", model, group_size=2)
        counters = Counters("partial")
        steps = 60
        train(optimizer, model, 0, 1)
        if bf.rank() > 0:
            for step in range(steps):
                train(optimizer, model, step, step + 1)
                counters.add()
        else:
            others = counters.counts[1:]
            while others.max() < steps:
                time.sleep(0.001)
            # The others of its group go on as soon as it does.
            while others.min() < steps:
                train(optimizer, model, 1, 2)
        optimizer.leave()

    def test_a_late_rank_delays_the_next_step_and_not_this_one(self):
        """With overlap, step() returns while a neighbor hasn't sent its model yet."""
        for method, options in (("stochastic", {"graph": "complete"}), ("local-sgd", {})):
            model = make_model(bf.rank())
            optimizer = wrapped(method, model, overlap=True, **options)
            if bf.rank() == 0:
                optimizer.zero_grad()
                loss_of(model, 0, 0).backward()
                optimizer.step()
                self.assertEqual(len(optimizer._pending), 1)
                if bf.size() > 1:
                    self.assertFalse(optimizer._pending[0][1].test())
                with open(self.path(), "w"):
                    pass  # the others may step now
            else:
                while not os.path.exists(self.path()):
                    time.sleep(0.001)
                train(optimizer, model, 0, 1)
            optimizer.synchronize()
            self.assertEqual(optimizer._pending, [])
            optimizer.leave()
            dunlin.barrier()
            if bf.rank() == 0:
                os.unlink(self.path())
            dunlin.barrier()

    @staticmethod
    def path():
        return os.path.join(tempfile.gettempdir(), f"dunlin_methods_{os.getppid()}_late")


if __name__ == "__main__":
    unittest.main()
