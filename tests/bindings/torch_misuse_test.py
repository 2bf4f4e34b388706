"""What the wrappers of dunlin.torch refuse, and how often they average: dunlin-run -n N python3 torch_misuse_test.py"""

import contextlib
import logging
import unittest

import torch
import torch.utils.checkpoint

import dunlin.torch as bf
from dunlin.torch import _wrapper
from torch_features import train_both
from torch_wrappers import Model, combining, loss_of, make_optimizer, wrappers


def setUpModule():
    logging.disable(logging.WARNING)  # steps that do not overlap
    bf.init()
    bf.set_topology(bf.FullyConnectedGraph(bf.size()))


@contextlib.contextmanager
def small_buffers():
    """With a buffer for each parameter."""
    before, _wrapper._Distributed.buffer_bytes = _wrapper._Distributed.buffer_bytes, 1
    try:
        yield
    finally:
        _wrapper._Distributed.buffer_bytes = before


def gradient_wrappers():
    return [wrapper for wrapper in wrappers() if wrapper.name in ("all-reduce", "straggler-ring", "GradientAllreduce")]


def trained_by_all():
    return [wrapper for wrapper in wrappers() if "servers" not in wrapper.what]


class Misuse(unittest.TestCase):
    def test_parameters_are_wrapped_once(self):
        everything = trained_by_all()
        for number, wrapper in enumerate(everything):
            with self.subTest(wrapper=wrapper.name):
                model = Model()
                optimizer = wrapper.wrap(make_optimizer(model), model, 1)
                hooks = len(model._forward_pre_hooks)
                for other in (wrapper, everything[number - 1]):
                    with self.assertRaisesRegex(ValueError, "wrapped already, by an optimizer whose leave"):
                        other.wrap(make_optimizer(model), model, 1)
                    with self.assertRaisesRegex(ValueError, "not wrapped yet"):
                        other.wrap(optimizer, model, 1)
                self.assertEqual(len(model._forward_pre_hooks), hooks)
                loss_of(model, 0, 0).backward()
                optimizer.step()
                optimizer.leave()
                optimizer.leave()
                self.assertEqual(len(model._forward_pre_hooks), 0)
                with self.assertRaisesRegex(RuntimeError, "after leave"):
                    optimizer.step()
                everything[number - 1].wrap(make_optimizer(model), model, 1).leave()

    def test_parameters_that_no_rank_would_average(self):
        for wrapper in trained_by_all():
            with self.subTest(wrapper=wrapper.name):
                model, other = Model(), torch.nn.Linear(2, 3)
                both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1, momentum=0.5)
                with self.assertRaisesRegex(ValueError, r"2 parameters .* not in the model, .*\(3, 2\), \(3,\).*as a list"):
                    wrapper.wrap(both, model, 1)
                self.assertEqual(len(model._forward_pre_hooks), 0)
                optimizer = wrapper.wrap(both, [model, other], 1)
                optimizer.leave()
                optimizer = wrapper.wrap(make_optimizer(model), model, 1)
                model.last.bias.requires_grad_(True)
                with self.assertRaisesRegex(ValueError, r"1 have been added or need gradients now, .*\(1,\)"):
                    optimizer.step()
                model.last.bias.requires_grad_(False)
                optimizer.add_param_group({"params": list(other.parameters())})
                with self.assertRaisesRegex(ValueError, "2 have been added"):
                    optimizer.step()
                optimizer.leave()

    def test_accumulation_that_does_not_fit(self):
        for wrapper in gradient_wrappers():
            with self.subTest(wrapper=wrapper.name):
                # More passes than were announced are averaged again.
                model, plain = Model(), Model()
                optimizer = wrapper.wrap(make_optimizer(model), model, 1)
                expected = make_optimizer(plain)
                for _ in range(2):
                    loss_of(model, bf.rank(), 0).backward()
                    for rank in range(bf.size()):
                        (loss_of(plain, rank, 0) / bf.size()).backward()
                optimizer.step()
                expected.step()
                optimizer.leave()
                for p, q in zip(model.parameters(), plain.parameters(), strict=True):
                    self.assertTrue(torch.allclose(p, q, rtol=1e-5, atol=1e-6))
                # Gradients that no average would have.
                optimizer = wrapper.wrap(make_optimizer(model), model, 2)
                for _ in range(3):
                    loss_of(model, 0, 0).backward()
                with self.assertRaisesRegex(RuntimeError, "call it after 2 passes"):
                    optimizer.step()
                optimizer.leave()

    def test_a_tied_weight_in_reentrant_checkpoints(self):
        """The gradient of a tied weight changes twice in a pass. Where the first value was sent, it is an error."""
        for wrapper in gradient_wrappers():
            with self.subTest(wrapper=wrapper.name), small_buffers():
                model = Model(checkpoint=True)
                optimizer = wrapper.wrap(make_optimizer(model), model, 1)
                with self.assertRaisesRegex(RuntimeError, "has changed after it was sent.*use_reentrant=True"):
                    loss_of(model, 0, 0).backward()
                optimizer.leave()

    def test_gradients_that_are_clipped_too_early(self):
        """Some are averages when the pass ends, and others come after that of the parameter that is not used."""
        for wrapper in gradient_wrappers():
            with self.subTest(wrapper=wrapper.name), small_buffers():
                model = Model(has_unused=True)
                optimizer = wrapper.wrap(make_optimizer(model), model, 1)
                for is_in_time in (False, True):
                    optimizer.zero_grad()
                    loss_of(model, bf.rank(), 0).backward()
                    if is_in_time:
                        optimizer.synchronize()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                    if is_in_time:
                        optimizer.step()
                        continue
                    with self.assertRaisesRegex(RuntimeError, "clipping.*call synchronize.. before"):
                        optimizer.step()
                    optimizer.synchronize()
                models = bf.allgather(torch.cat([p.detach().reshape(1, -1) for p in model.parameters()], 1))
                self.assertTrue(torch.equal(models, models[:1].expand_as(models)))
                optimizer.leave()

    def test_servers_take_no_momentum(self):
        for wrapper in wrappers():
            if "servers" not in wrapper.what:
                continue
            model = Model()
            plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
            loss_of(model, 0, 0).backward()
            plain.step()
            with self.assertRaisesRegex(ValueError, "state has momentum, which the servers can't take"):
                wrapper.wrap(plain, model, 1)
            plain.state.clear()
            optimizer = wrapper.wrap(plain, model, 1)
            if optimizer.is_server:
                optimizer.serve()
            else:
                loss_of(model, 0, 0).backward()
                optimizer.step()
            optimizer.leave()


class Counting(unittest.TestCase):
    def test_a_checkpoint_of_the_whole_model_is_one_pass(self):
        for kind in ("AdaptWithCombine", "AdaptThenCombine"):
            for use_reentrant in (False, True):
                with self.subTest(kind=kind, use_reentrant=use_reentrant):
                    model = Model(bf.rank())
                    optimizer = combining(kind, "").wrap(make_optimizer(model), model, 2)
                    passes = []
                    for _ in range(4):
                        optimizer.zero_grad()
                        x = torch.ones(2, 6, requires_grad=True)
                        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=use_reentrant).sum().backward()
                        optimizer.step()
                        passes.append(optimizer._passes)
                    self.assertEqual(passes, [1, 0, 1, 0])
                    optimizer.leave()

    def test_hooks_of_the_step_run_once(self):
        if not hasattr(torch.optim.Optimizer, "register_step_post_hook"):
            self.skipTest("optimizers of this PyTorch have no hooks")
        for wrapper in trained_by_all():
            with self.subTest(wrapper=wrapper.name):
                model = Model()
                plain = make_optimizer(model)
                calls = []
                plain.register_step_post_hook(lambda *_: calls.append(1))
                optimizer = wrapper.wrap(plain, model, 1)
                for _ in range(2):
                    loss_of(model, 0, 0).backward()
                    optimizer.step()
                    optimizer.load_state_dict(optimizer.state_dict())
                    optimizer.zero_grad()
                optimizer.leave()
                self.assertEqual(len(calls), 2)

    def test_a_fused_step_that_scales_gradients_is_not_taken_early(self):
        try:
            torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, fused=True)
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        except (AttributeError, TypeError, RuntimeError) as error:
            self.skipTest(f"this PyTorch has no fused SGD for a GradScaler on a CPU: {error}")

        def fused(model):
            return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, fused=True)

        def step(model, optimizer, number, is_wrapped):
            scaler.scale(loss_of(model, 0, number)).backward()
            scaler.step(optimizer)
            scaler.update()

        for wrapper in trained_by_all():
            if "lags" in wrapper.what or "quasi" in wrapper.what:
                continue
            with self.subTest(wrapper=wrapper.name):
                models = train_both(wrapper, fused, 4, step)
                for p, q in zip(*(model.parameters() for model in models), strict=True):
                    self.assertTrue(torch.allclose(p, q, rtol=1e-5, atol=1e-5), (p - q).abs().max())


if __name__ == "__main__":
    unittest.main()
