"""dunlin.torch.DistributedOptimizer in jobs in which a rank dies, or is late:

    dunlin-run -n N --keep-going python3 torch_methods_ends_test.py killed METHOD
    dunlin-run -n N --keep-going python3 torch_methods_ends_test.py killed_between METHOD
    DUNLIN_DEADLINE=3s dunlin-run -n N python3 torch_methods_ends_test.py absent
    DUNLIN_DEADLINE=3s dunlin-run -n N python3 torch_methods_ends_test.py late_to_leave
"""

import contextlib
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import torch

import dunlin
import dunlin.torch as bf
from torch_methods import flat, loss_of, make_model, train, wrapped


def setUpModule():
    bf.init()


class Killed(unittest.TestCase):
    """Rank 1 dies in its fifth step. With parameter servers, the last rank is the server."""

    def test(self):
        method = sys.argv[2]
        survives = method in ("partial", "ad-psgd", "async-parameter-server")
        model = make_model(bf.rank(), torch.float32)
        if method.endswith("server"):
            optimizer = bf.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, method)
            if optimizer.is_server:
                return self.serve(optimizer, survives)
        else:
            optimizer = wrapped(method, model)
        done = 0
        try:
            for step in range(60 if survives else 1_000_000):
                optimizer.zero_grad()
                loss_of(model, bf.rank(), step).backward()
                if bf.rank() == 1 and step == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
                optimizer.step()
                done += 1
        except dunlin.PeerDeadError as error:
            self.assertFalse(survives)
            self.assertEqual(error.peer, 1)
            kept = flat(model)
            with self.assertRaises(dunlin.PeerDeadError) as again:
                optimizer.step()
            self.assertEqual(again.exception.peer, 1)
            self.assertTrue(torch.equal(flat(model), kept))
            with contextlib.suppress(dunlin.PeerDeadError):  # if anything is left to be done with rank 1
                optimizer.leave()
            optimizer.leave()  # it has left all the same
        else:
            self.assertTrue(survives)
            self.assertEqual((done, optimizer.statistics()["iterations"]), (60, 60))
            optimizer.leave()
        self.assertTrue(torch.isfinite(flat(model)).all())
        print("survived" if survives else "told", flush=True)

    def serve(self, optimizer, survives):
        if survives:
            optimizer.serve()
            self.assertGreaterEqual(optimizer.statistics()["updates"], 2 * 60 + 4)
        else:
            with self.assertRaises(dunlin.PeerDeadError) as caught:
                optimizer.serve()
            self.assertEqual(caught.exception.peer, 1)
        optimizer.leave()
        print("served", flush=True)


class KilledBetween(unittest.TestCase):
    """Rank 1 dies after a step, and the others find it dead before the next one."""

    def test(self):
        model = make_model(0, torch.float32)
        optimizer = bf.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, sys.argv[2])
        if not optimizer.is_server:
            train(optimizer, model, 0, 3)
        dunlin.barrier()
        if bf.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.assertRaises(dunlin.PeerDeadError):
            while True:
                dunlin.barrier()
        calls = [optimizer.serve] * 3 if optimizer.is_server else [optimizer.step] * 3 + [optimizer.leave]
        for call in calls:
            with self.assertRaises(dunlin.PeerDeadError) as caught:
                call()
            self.assertEqual(caught.exception.peer, 1)
        optimizer.leave()
        print("told", flush=True)


class LateToLeave(unittest.TestCase):
    """Rank 0 has to wait longer than the deadline to leave, and leaves again."""

    def leave_twice(self, optimizer, model, between):
        with self.assertRaises(dunlin.DeadlineExceededError):
            optimizer.leave()
        with self.assertRaisesRegex(ValueError, "wrapped already"):
            optimizer._find_parameters([model])
        between()
        optimizer.leave()

    def test_stochastic(self):
        model = make_model(0, torch.float32)
        optimizer = wrapped("stochastic", model)
        train(optimizer, model, 0, 3)
        path = os.path.join(tempfile.gettempdir(), f"dunlin_methods_{os.getppid()}_leaving")
        if bf.rank() == 0:
            self.leave_twice(optimizer, model, pathlib.Path(path).touch)
        else:
            while not os.path.exists(path):
                time.sleep(0.01)
            optimizer.leave()
        with self.assertRaisesRegex(RuntimeError, "after leave"):
            optimizer.step()
        self.assertEqual(dunlin.all_reduce(torch.ones(1)).item(), bf.size())  # the ranks' calls match
        if bf.rank() == 0:
            os.unlink(path)


class Absent(unittest.TestCase):
    """Rank 1 makes no step until the deadline of the others has passed."""

    def test(self):
        for method, options in (("local-sgd", {}), ("stochastic", {"graph": "complete"}),
                                ("partial", {"group_size": bf.size()}), ("all-reduce", {}), ("straggler-ring", {})):
            averages_gradients = method in ("all-reduce", "straggler-ring")
            model = make_model(0 if averages_gradients else bf.rank(), torch.float32)
            optimizer = wrapped(method, model, **options)
            path = os.path.join(tempfile.gettempdir(), f"dunlin_methods_{os.getppid()}_{method}_")
            if bf.rank() == 1:
                while not all(os.path.exists(path + str(rank)) for rank in range(bf.size()) if rank != 1):
                    time.sleep(0.01)
                train(optimizer, model, 0, 1)
            else:
                with self.assertRaises(dunlin.DeadlineExceededError) as caught:
                    train(optimizer, model, 0, 1)
                # Around a ring, a rank waits for its predecessor, which may wait for rank 1 itself.
                blamed = [1] if method != "straggler-ring" else [rank for rank in range(bf.size()) if rank != bf.rank()]
                self.assertIn(caught.exception.peer, blamed, str(caught.exception))
                with open(path + str(bf.rank()), "w"):
                    pass
                # The average has continued.
                if averages_gradients:
                    optimizer.step()
                else:
                    optimizer.synchronize()
            models = bf.allgather(flat(model).reshape(1, -1))
            self.assertTrue(torch.allclose(models, models[:1].expand_as(models)))
            optimizer.leave()
            dunlin.barrier()
            if bf.rank() != 1:
                os.unlink(path + str(bf.rank()))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], defaultTest={"killed": "Killed", "absent": "Absent", "killed_between": "KilledBetween",
                                                 "late_to_leave": "LateToLeave"}[sys.argv[1]])
