"""Adapt then combine that overlaps with the backward pass: dunlin-run -n N python3 torch_overlap_test.py

With overlap, models come out bit by bit as without, and averages start before the backward pass ends. Where overlap is not
possible, the wrapper says why and steps without it.
"""

import json
import logging
import os
import tempfile
import unittest

import torch

FOLDER = tempfile.TemporaryDirectory()
os.environ["DUNLIN_TIMELINE"] = os.path.join(FOLDER.name, "timeline-")

import dunlin.torch as bf  # noqa: E402
from dunlin.torch import CommunicationType, _job, _then_combine  # noqa: E402

torch.set_num_threads(1)
LAYERS = 4
STEPS = 4
WIDTH = 40
# A layer's weights have 6400 bytes: with overlap, a buffer ends with each of them, and one has the last bias.
_then_combine._OVERLAPPING_BYTES = 6000


def setUpModule():
    logging.disable(logging.WARNING)
    bf.init()


class Model(torch.nn.Sequential):
    def __init__(self, seed, dtype=torch.float32, width=WIDTH):
        torch.manual_seed(seed)
        layers = []
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
        super().__init__(*layers)
        self.width = width
        self.to(dtype)


def loss_of(model, step):
    generator = torch.Generator().manual_seed(1000 * bf.rank() + step)
    return model(torch.randn(2, model.width, generator=generator).to(next(model.parameters()).dtype)).pow(2).sum()


def in_progress():
    """The number of operations of dunlin.torch that have been started and not waited for."""
    return len(_job.job().pending)


class Training:
    """Trains, and counts the averages that were in progress when the backward pass ended."""

    def __init__(self, make, overlap, wrap=bf.DistributedAdaptThenCombineOptimizer, model=None, **options):
        self.model = Model(bf.rank()) if model is None else model
        self.optimizer = wrap(make(self.model), self.model, overlap=overlap, **options)
        self.averages = []

    def step(self, step, backward=lambda model, step: loss_of(model, step).backward()):
        self.optimizer.zero_grad()
        backward(self.model, step)
        self.averages.append(in_progress())
        self.optimizer.step()

    def run(self, steps=STEPS, prepare=lambda optimizer, step: None, **options):
        for step in range(steps):
            prepare(self.optimizer, step)
            self.step(step, **options)
        return self

    def parameters(self):
        return [p.detach() for p in self.model.parameters()]


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **options)


def in_groups(model):
    first, *rest = model.parameters()
    return torch.optim.SGD([{"params": rest, "lr": 0.02}, {"params": [first], "momentum": 0.5}], lr=0.01, momentum=0.9,
                           weight_decay=0.1, nesterov=True)


class Overlap(unittest.TestCase):
    def setUp(self):
        bf.set_topology(bf.RingGraph(bf.size()))

    def assert_same(self, one, other):
        for p, q in zip(one.parameters(), other.parameters(), strict=True):
            self.assertTrue(torch.equal(p, q), f"{(p - q).abs().max()}")

    def compare(self, make, wrap=bf.DistributedAdaptThenCombineOptimizer, averages=LAYERS + 1, **options):
        plain = Training(make, False, wrap, **options).run()
        overlapping = Training(make, True, wrap, **options).run()
        self.assertIsNone(overlapping.optimizer.why_no_overlap)
        self.assertEqual(plain.averages, [0] * STEPS)
        self.assertEqual(overlapping.averages, [0] + [averages] * (STEPS - 1))
        self.assert_same(plain, overlapping)

    def test_all_optimizers_give_the_same_bits(self):
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax,
                     torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.ASGD):
            self.compare(lambda model: kind(model.parameters(), lr=0.01))
        for make in (sgd, in_groups):
            self.compare(make)
            self.compare(make, bf.DistributedDmSGDOptimizer)
            self.compare(make, bf.DistributedQGDmSGDOptimizer)

    def test_all_averages_give_the_same_bits(self):
        """Of the same buffers: how an all-reduce divides a buffer may change how it rounds."""
        bf.set_machine_topology(bf.ExponentialGraph(bf.machine_size()))
        for kind in (CommunicationType.allreduce, CommunicationType.hierarchical_neighbor_allreduce):
            plain = Training(sgd, True, communication_type=kind)
            plain.optimizer.overlap = False
            plain.run()
            overlapping = Training(sgd, True, communication_type=kind).run()
            self.assertEqual(plain.averages + overlapping.averages, [0] * (STEPS + 1) + [LAYERS + 1] * (STEPS - 1))
            self.assert_same(plain, overlapping)
        self.compare(sgd, communication_type=CommunicationType.empty, averages=0)

    def test_half_precision(self):
        for make in (sgd, lambda model: torch.optim.Adam(model.parameters(), lr=0.01)):
            results = [Training(make, overlap, model=Model(bf.rank(), torch.bfloat16)).run() for overlap in (False, True)]
            self.assertGreater(results[1].averages[-1], 1)
            self.assert_same(*results)

    def test_a_graph_that_changes(self):
        if bf.size() < 2:
            return  # it needs neighbors
        results = []
        for overlap in (False, True):
            turns = bf.GetDynamicOnePeerSendRecvRanks(bf.ExponentialGraph(bf.size()), bf.rank())

            def prepare(optimizer, step):
                optimizer.dst_weights, receive = next(turns)
                optimizer.src_weights = {rank: 1 / (len(receive) + 1) for rank in receive}
                optimizer.self_weight = 1 / (len(receive) + 1)

            results.append(Training(sgd, overlap).run(prepare=prepare))
        self.assert_same(*results)
        self.assertEqual(results[1].averages[-1], LAYERS + 1)

    def test_gradients_of_several_passes(self):
        """Averages overlap with the last of them."""
        results = []
        for overlap in (False, True):
            training = Training(sgd, overlap, num_steps_per_communication=2)
            after_first = []

            def twice(model, step):
                loss_of(model, 2 * step).backward()
                after_first.append(in_progress())
                loss_of(model, 2 * step + 1).backward()

            training.run(backward=twice)
            self.assertEqual(after_first, [0] * STEPS)
            results.append(training)
        self.assert_same(*results)
        self.assertEqual(results[1].averages, [0] + [LAYERS + 1] * (STEPS - 1))

    def test_local_steps_between(self):
        for wrap in (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedDmSGDOptimizer, bf.DistributedQGDmSGDOptimizer):
            results = [Training(sgd, overlap, wrap, num_steps_per_communication=2).run() for overlap in (False, True)]
            self.assert_same(*results)
            self.assertEqual(results[1].averages, [0, 0, 0, LAYERS + 1])

    def test_tied_and_unused_parameters(self):
        """A tied weight is final once. A buffer with a parameter without a gradient waits for step(), as do those after
        it in the order.
        """
        results = []
        for overlap in (False, True):
            model = Model(bf.rank())
            model[4].weight = model[0].weight
            model.register_parameter("unused", torch.nn.Parameter(torch.full((600, 600), bf.rank() + 1.0)))
            training = Training(sgd, overlap, model=model).run()
            self.assertIsNone(training.optimizer.why_no_overlap)
            results.append(training)
        self.assert_same(*results)
        # Its own parameter comes first in the order of a module, and so last in that of the averages.
        self.assertGreater(results[1].averages[-1], 1)
        self.assertLess(results[1].averages[-1], len(results[1].optimizer._buffers))

    def test_a_schedule_of_the_learning_rate(self):
        results = []
        for overlap in (False, True):
            model = Model(bf.rank())
            plain = sgd(model)
            training = Training(lambda model: plain, overlap, model=model)
            scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 1, 0.5)
            for step in range(STEPS):
                training.step(step)
                scheduler.step()
            results.append(training)
        self.assert_same(*results)
        self.assertEqual(results[1].averages[-1], LAYERS + 1)

    def test_order_of_events(self):
        """In the timeline, the average of the last layer starts before the backward pass ends, and without overlap after."""
        for overlap in (False, True):
            training = Training(sgd, overlap)
            name = f"overlap {overlap}"
            for step in range(2):
                training.optimizer.zero_grad()
                loss = loss_of(training.model, step)
                with bf.timeline_context(name, "BACKWARD"):
                    loss.backward()
                with bf.timeline_context(name, "STEP"):
                    training.optimizer.step()
            events = self.read_timeline()
            # The first step with overlap is a trial, so the second one counts.
            begin, end = [[e["ts"] for e in events if e["ph"] == ph and e.get("args", {}).get("tensor") == name][-2:]
                          for ph in ("B", "E")]
            key = training.optimizer._key
            starts = [(e["ts"], e["args"]["tensor"]) for e in events if e["ph"] == "b" and e["ts"] > begin[0]]
            last = LAYERS if overlap else 0
            self.assertEqual([tensor for _, tensor in starts], [f"{key}.{number}" for number in range(last, -1, -1)])
            for ts, _ in starts:
                self.assertTrue(begin[0] < ts < end[0] if overlap else begin[1] < ts < end[1])
            ends = [e["ts"] for e in events if e["ph"] == "e" and e["ts"] > begin[0]]
            self.assertEqual(len(ends), last + 1)
            self.assertTrue(all(begin[1] < ts < end[1] for ts in ends))

    def read_timeline(self):
        with open(f"{os.environ['DUNLIN_TIMELINE']}{bf.rank()}.json", encoding="utf-8") as file:
            return json.loads(file.read().rstrip().rstrip(",") + "]")


class NoOverlap(unittest.TestCase):
    """Where overlap isn't possible, models come out as without it."""

    def setUp(self):
        bf.set_topology(bf.RingGraph(bf.size()))

    def compare(self, reason, run):
        """run(overlap) returns a Training that has run."""
        plain, other = run(False), run(True)
        self.assertRegex(other.optimizer.why_no_overlap, reason)
        self.assertEqual(set(other.averages), {0})
        for p, q in zip(plain.parameters(), other.parameters(), strict=True):
            self.assertTrue(torch.equal(p, q))

    def test_clipping(self):
        def backward(model, step):
            loss_of(model, step).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)

        self.compare("clipping", lambda overlap: Training(sgd, overlap).run(backward=backward))

    def test_a_scaled_loss(self):
        """What a GradScaler does: the loss is multiplied, and gradients are divided in place before step()."""
        def backward(model, step):
            (loss_of(model, step) * 1024).backward()
            for p in model.parameters():
                p.grad.mul_(1 / 1024)

        self.compare("GradScaler", lambda overlap: Training(sgd, overlap).run(backward=backward))

    def test_a_scaled_loss_whose_gradients_keep_their_version(self):
        """PyTorch's own GradScaler changes gradients so that their versions don't tell it."""
        def backward(model, step):
            (loss_of(model, step) * 1024).backward()
            for p in model.parameters():
                p.grad.data.mul_(1 / 1024)

        self.compare("GradScaler", lambda overlap: Training(sgd, overlap).run(backward=backward))

    def test_new_gradients(self):
        def backward(model, step):
            loss_of(model, step).backward()
            for p in model.parameters():
                p.grad = p.grad / 2

        self.compare("gradients are changed", lambda overlap: Training(sgd, overlap).run(backward=backward))

    def test_several_passes_that_are_not_announced(self):
        def backward(model, step):
            loss_of(model, step).backward()
            loss_of(model, step + 100).backward()

        self.compare("num_steps_per_communication", lambda overlap: Training(sgd, overlap).run(backward=backward))

    def test_closures_and_lbfgs(self):
        def run(overlap, make):
            training = Training(make, overlap, model=Model(bf.rank(), width=20))
            for step in range(STEPS):
                def closure():
                    training.optimizer.zero_grad()
                    loss = loss_of(training.model, step)
                    loss.backward()
                    training.averages.append(in_progress())
                    return loss

                training.optimizer.step(closure)
            return training

        self.compare("closure", lambda overlap: run(overlap, sgd))
        self.compare("LBFGS", lambda overlap: run(overlap, lambda model: torch.optim.LBFGS(model.parameters(), max_iter=2)))

    def test_classes_of_the_program(self):
        class Mine(torch.optim.SGD):
            pass

        self.compare("step of a Mine", lambda overlap: Training(lambda model: Mine(model.parameters(), lr=0.1), overlap).run())

    def test_a_model_in_evaluation_mode(self):
        def run(overlap):
            model = Model(bf.rank())
            model.eval()
            return Training(sgd, overlap, model=model).run()

        self.compare("training mode", run)

    def test_hooks_of_the_step(self):
        def run(overlap):
            training = Training(sgd, overlap)
            training.optimizer._optimizer_step_post_hooks = {1: lambda *_: None}  # as PyTorch 2 calls them
            return training.run()

        self.compare("step has hooks", run)

    def test_switched_off(self):
        training = Training(sgd, True).run()
        self.assertGreater(training.averages[-1], 0)
        training.optimizer.overlap = False
        training.run()
        self.assertEqual(training.averages[-STEPS:], [0] * STEPS)
        training.optimizer.overlap = True
        training.run()
        self.assertGreater(training.averages[-1], 0)
        with self.assertRaisesRegex(ValueError, "overlap 1"):
            training.optimizer.overlap = 1
        for wrap in (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedDmSGDOptimizer):
            with self.assertRaisesRegex(ValueError, "overlap"):
                Training(sgd, "yes", wrap)

    def test_violations_that_come_too_late(self):
        def clipping(model, step):
            loss_of(model, step).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)

        training = Training(sgd, True).run()
        with self.assertRaisesRegex(RuntimeError, "clipping.*set overlap to False"):
            training.step(0, clipping)
        training.optimizer.overlap = False
        training.step(0, clipping)  # and goes on without
        training = Training(sgd, True).run()
        loss_of(training.model, 0).backward()
        with self.assertRaisesRegex(RuntimeError, "call step.* after each backward pass"):
            loss_of(training.model, 0).backward()
        with self.assertRaisesRegex(RuntimeError, "closure"):
            training.optimizer.step(lambda: 0.0)
        training.run(1)  # and goes on

    def test_a_wrong_graph_is_an_error_of_step(self):
        if bf.size() < 2:
            return  # it needs neighbors
        for wrap in (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedDmSGDOptimizer, bf.DistributedQGDmSGDOptimizer):
            models = []
            for overlap in (False, True):
                training = Training(sgd, overlap, wrap).run()
                optimizer = training.optimizer
                optimizer.enable_topo_check = True
                optimizer.self_weight, optimizer.dst_weights = 0.5, []
                optimizer.src_weights = {(bf.rank() + 1) % bf.size(): 0.5}
                with self.assertRaises(ValueError):
                    training.step(10)
                self.assertEqual(in_progress(), 0)
                optimizer.dst_weights = [(bf.rank() - 1) % bf.size()]
                training.step(11)
                self.assertEqual(training.averages[-1], LAYERS + 1 if overlap else 0)
                models.append(training.parameters())
            for p, q in zip(*models, strict=True):
                self.assertTrue(torch.equal(p, q))


if __name__ == "__main__":
    unittest.main()
