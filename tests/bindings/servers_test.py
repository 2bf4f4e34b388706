"""Parameter servers, on every rank of a job: dunlin-run -n N python3 servers_test.py"""

import unittest

import dunlin
import numpy as np
from collectives_test import Exported

COUNT = 3001
STEPS = 6


def initial():
    return (np.arange(COUNT) % 17 / 17).astype(np.float32)


def gradient(worker, step, model):
    return (0.25 * model + (np.arange(COUNT) * 7 + worker * 13 + step * 5) % 1000 / 1000 - 0.5).astype(np.float32)


def reference(workers, rates, momentum, weight_decay):
    """What one process does with the mean gradient, in float64."""
    model, velocity = initial().astype(float), np.zeros(COUNT)
    for step, rate in enumerate(rates):
        mean = sum(gradient(worker, step, model.astype(np.float32)).astype(float) for worker in range(workers)) / workers
        velocity = momentum * velocity + mean + weight_decay * model
        model -= rate * velocity
    return model


class ServersTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()

    def test_alone_there_is_nobody_to_train(self):
        if self.size == 1:
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "1 servers of 1 ranks"):
                dunlin.ParameterServers(10)

    def test_a_step_is_that_of_one_process_with_the_mean_gradient(self):
        for count in range(1, self.size):
            for momentum, weight_decay in ((0.0, 0.0), (0.9, 1e-3)):
                with self.subTest(servers=count, momentum=momentum):
                    servers = dunlin.ParameterServers(COUNT, count, False, momentum, weight_decay, "mean")
                    workers = self.size - count
                    self.assertEqual((servers.name, servers.count, servers.servers, servers.asynchronous,
                                      servers.is_server), ("mean", COUNT, count, False, self.rank >= workers))
                    rates = [0.3 / (step + 1) for step in range(STEPS)]
                    if servers.is_server:
                        servers.serve()
                        self.assertEqual(servers.statistics()["updates"], STEPS)
                        continue
                    model = initial()
                    for step, rate in enumerate(rates):
                        self.assertIs(servers.step(model, gradient(self.rank, step, model), rate), model)
                    servers.leave()
                    np.testing.assert_allclose(model, reference(workers, rates, momentum, weight_decay), atol=2e-6)
                    done = servers.statistics()
                    self.assertEqual((done["iterations"], done["updates"]), (STEPS, STEPS))
                    self.assertGreaterEqual(done["bytes_sent"], 4 * COUNT * (STEPS + 1))

    def test_the_initial_model_is_that_of_the_lowest_rank(self):
        if self.size < 2:
            return
        servers = dunlin.ParameterServers(4)
        if servers.is_server:
            return servers.serve()
        model = np.full((2, 2), self.rank + 5, np.float32)
        servers.step(model, np.zeros((2, 2), np.float32), 1.0)
        np.testing.assert_array_equal(model, 5)
        servers.leave()

    def test_asynchronous_servers_apply_every_gradient(self):
        """Worker 0 makes one step, and another one only after the others have made 50."""
        if self.size < 3:
            return
        servers = dunlin.ParameterServers(100, asynchronous=True)
        workers = self.size - 1
        self.assertTrue(servers.asynchronous)
        model, ones = np.zeros(100, np.float32), np.ones(100, np.float32)
        team = dunlin.split(0 if servers.is_server else 1)
        if servers.is_server:
            servers.serve()
            self.assertEqual(servers.statistics()["updates"], 51 * (workers - 1) + 2)
            return
        servers.step(model, ones, 0.5)
        team.barrier()
        if self.rank == 0:
            team.barrier()
            request = servers.start_step(model, ones, 0.5)
            request.wait()
            # All steps of the others, and the two of this one.
            np.testing.assert_array_equal(model, -0.5 * (51 * (workers - 1) + 2))
        else:
            for _ in range(50):
                servers.step(model, Exported(ones), 0.5)
            team.barrier()
        servers.leave()

    def test_mistakes(self):
        wrong_ones = [{"count": 0}, {"count": "ten"}, {"servers": 0}, {"servers": self.size}, {"servers": "many"},
                      {"momentum": -1.0}, {"weight_decay": float("nan")}, {"momentum": "none"}]
        for wrong in wrong_ones:
            with self.assertRaises(dunlin.InvalidArgumentError, msg=str(wrong)):
                dunlin.ParameterServers(**{"count": 10, **wrong})
            # One rank's mistake is an error on all ranks. The next calls match.
            with self.assertRaises(dunlin.InvalidArgumentError, msg=str(wrong)):
                dunlin.ParameterServers(**{"count": 10, **(wrong if self.rank == 0 else {})})
        if self.size < 2:
            return
        for differs in ({"count": 10 + self.rank}, {"momentum": self.rank / 10}, {"asynchronous": self.rank == 0}):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "making 'parameters'"):
                dunlin.ParameterServers(**{"count": 10, **differs})
        servers = dunlin.ParameterServers(10)
        model, ones = np.zeros(10, np.float32), np.ones(10, np.float32)
        if servers.is_server:
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "is a server"):
                servers.step(model, ones, 1.0)
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "is a server"):
                servers.leave()
            with self.assertRaises(dunlin.DeadlineExceededError):
                servers.serve(timeout=0.1)  # no worker has begun
            dunlin.barrier()
            servers.serve()
            servers.serve()
            return
        dunlin.barrier()
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "is no server"):
            servers.serve()
        for arrays in ((model[:9], ones), (model, ones[:9]), (model, np.ones(10)), (np.ones(10), ones)):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "10 float32"):
                servers.step(*arrays, 1.0)
        servers.step(model, ones, 1.0)
        np.testing.assert_array_equal(model, -1)
        servers.leave()
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "has left"):
            servers.step(model, ones, 1.0)


def setUpModule():
    dunlin.init()


if __name__ == "__main__":
    unittest.main(verbosity=1)
