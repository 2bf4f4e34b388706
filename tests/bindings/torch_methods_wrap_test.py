"""How dunlin.torch.DistributedOptimizer begins and ends: dunlin-run -n N python3 torch_methods_wrap_test.py"""

import unittest

import torch

import dunlin.torch as bf
from torch_methods import all_reduced, flat, loss_of, make_model, servers_of, train, wrapped


def setUpModule():
    bf.init()


class Wrapping(unittest.TestCase):
    def test_all_reduce_leaves_the_model_as_it_was(self):
        model, alone = make_model(0), make_model(0)
        optimizer = wrapped("all-reduce", model)
        for wrap in (lambda: wrapped("all-reduce", model), lambda: wrapped("stochastic", model)):
            with self.assertRaisesRegex(ValueError, "wrapped already"):
                wrap()
        train(optimizer, model, 0, 1)
        optimizer.leave()
        optimizer.leave()
        for call in (optimizer.step, optimizer.synchronize):
            with self.assertRaisesRegex(RuntimeError, "after leave"):
                call()
        self.assertFalse(model._forward_pre_hooks)
        # Without an average, and as often as one likes.
        alone.load_state_dict(model.state_dict())
        for each in (model, alone):
            each.zero_grad()
            for _ in range(3):
                loss_of(each, bf.rank(), 1).backward()
        for p, q in zip(model.parameters(), alone.parameters()):
            self.assertTrue(p.grad is q.grad is None or torch.equal(p.grad, q.grad))
        optimizer = wrapped("all-reduce", model)
        train(optimizer, model, 2, 4)
        self.assertEqual(optimizer.statistics(), {"averages": 2, "bytes_sent": 2 * all_reduced(model, 1)})
        loss_of(model, bf.rank(), 4).backward()
        optimizer.leave()  # with averages of a backward pass in progress
        for _ in range(20):
            model = make_model(0)
            wrapped("all-reduce", model)

    def test_parameters_that_change_after_wrapping_are_refused(self):
        for method in ("all-reduce", "local-sgd", "partial"):
            with self.subTest(method=method):
                model = make_model(0, torch.float32)
                optimizer = wrapped(method, model)
                model[3].bias.requires_grad_(True)
                with self.assertRaisesRegex(ValueError, r"1 have been added or need .*shapes \(1,\)\. Call leave"):
                    optimizer.step()
                model[3].bias.requires_grad_(False)
                model[0].weight.requires_grad_(False)
                with self.assertRaisesRegex(ValueError, r"1 have been removed or need no .*shapes \(4, 4\)\."):
                    optimizer.step()
                model[0].weight.requires_grad_(True)
                train(optimizer, model, 0, 1)
                optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(7))]})
                with self.assertRaisesRegex(ValueError, r"1 have been added.*\(7,\)"):
                    optimizer.step()
                optimizer.leave()
        if bf.size() == 1:
            return
        model = make_model(0, torch.float32)
        optimizer = servers_of("parameter-server", model)
        if optimizer.is_server:
            return optimizer.serve()
        for option, value, words in (("momentum", 0.9, "momentum is 0.9 now, and 0.5 at the servers"),
                                     ("weight_decay", 0.0, "weight_decay is 0.0 now"), ("nesterov", True, "nesterov")):
            before = optimizer.param_groups[0][option]
            optimizer.param_groups[0][option] = value
            with self.assertRaisesRegex(ValueError, words):
                optimizer.step()
            optimizer.param_groups[0][option] = before
        optimizer.param_groups[0]["lr"] = 0.3
        train(optimizer, model, 0, 1)
        optimizer.leave()

    def test_a_mistake_of_one_rank_is_an_error_on_all(self):
        last = bf.size() - 1

        def frozen():
            model = make_model(0, torch.float32)
            for parameter in model.parameters():
                parameter.requires_grad_(False)
            return model

        def adam(model):
            return torch.optim.Adam(model.parameters())

        for method, wrong in (("local-sgd", lambda: wrapped("local-sgd", frozen())),
                              ("partial", lambda: wrapped("partial", make_model(0))),
                              ("stochastic", lambda: wrapped("stochastic", make_model(0), graph="no such")),
                              ("local-sgd", lambda: wrapped("local-sgd", make_model(0), section_length=0)),
                              ("all-reduce", lambda: wrapped("no such", make_model(0))),
                              ("all-reduce", lambda: bf.DistributedOptimizer(adam(make_model(1)), make_model(0))),
                              ("all-reduce", lambda: bf.DistributedOptimizer(None, make_model(0)))):
            with self.subTest(method=method):
                model = make_model(0, torch.float32)
                if bf.rank() == last:
                    with self.assertRaises(ValueError) as caught:
                        wrong()
                    self.assertNotIn("has failed at rank", str(caught.exception))
                else:
                    with self.assertRaisesRegex(ValueError, f"has failed at rank {last}, whose error says why"):
                        wrapped(method, model)
        if bf.size() > 1:
            model = make_model(0, torch.float32)
            with self.assertRaises(ValueError):
                if bf.rank() == last:
                    bf.DistributedOptimizer(adam(model), model, "parameter-server")
                servers_of("parameter-server", model)
        model = make_model(0, torch.float32)
        optimizer = wrapped("all-reduce", model)
        train(optimizer, model, 0, 2)
        models = bf.allgather(flat(model).reshape(1, -1))
        self.assertTrue(torch.equal(models, models[:1].expand_as(models)))
        optimizer.leave()


if __name__ == "__main__":
    unittest.main()
