"""Stochastic reduces, on every rank of a job: dunlin-run -n N python3 stochastic_test.py"""

import itertools
import unittest

import dunlin
import numpy as np
from collectives_test import Exported

MODES = ["notify-ack", "bsp", "async"]


def graphs(size):
    """By how they are given: texts, and a Graph with edges of which no text knows."""
    yield from ("complete", "ring", "bidirectional-ring", "root-expander", "exponential")
    yield dunlin.graph.from_edges(size, [(0, rank) for rank in range(1, size)])


def matrix_of(graph, weighting, size):
    made = graph if isinstance(graph, dunlin.graph.Graph) else dunlin.graph.make(graph, size)
    matrix = np.zeros((size, size))
    for node in range(size):
        matrix[node, node], others = made.weights(node, weighting)
        for source, weight in others.items():
            matrix[node, source] = weight
    return matrix


class StochasticTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()

    def test_it_multiplies_with_the_mixing_matrix(self):
        steps = 5
        for graph, dtype in itertools.product(graphs(self.size), ("float32", "float64")):
            with self.subTest(graph=graph, dtype=dtype):
                reduce = dunlin.StochasticReduce(300, graph, dtype=dtype, name="mixed")
                self.assertEqual((reduce.name, reduce.count, reduce.dtype), ("mixed", 300, dtype))
                models = np.random.default_rng(1).normal(size=(self.size, 300))
                model = models[self.rank].astype(dtype).reshape(3, 100)
                for _ in range(steps):
                    self.assertIs(reduce.average(model), model)
                expected = np.linalg.matrix_power(matrix_of(graph, "uniform", self.size), steps) @ models
                np.testing.assert_allclose(model.reshape(-1), expected[self.rank], rtol=1e-4 if dtype == "float32" else 1e-12,
                                           atol=1e-6 if dtype == "float32" else 1e-14)
                in_degree = np.count_nonzero(matrix_of(graph, "uniform", self.size)[self.rank]) - 1
                done = reduce.statistics()
                self.assertEqual((done["reduces"], done["inputs"], done["torn"], done["stale"]),
                                 (steps, steps * in_degree, 0, 0))
                reduce.free()

    def test_metropolis_weights_keep_the_mean(self):
        reduce = dunlin.StochasticReduce(10, "star", weighting="metropolis", dtype="float64")
        model = np.full(10, float(self.rank))
        for _ in range(20):
            reduce.average(model)
        mean = dunlin.all_reduce(model, "avg")
        np.testing.assert_allclose(mean, (self.size - 1) / 2, rtol=1e-12)
        expected = np.linalg.matrix_power(matrix_of("star", "metropolis", self.size), 20) @ np.arange(self.size)
        np.testing.assert_allclose(model, expected[self.rank], rtol=1e-10, atol=1e-12)

    def test_modes_and_depths(self):
        for sync, depth in itertools.product(MODES, (1, 3)):
            with self.subTest(sync=sync, depth=depth):
                reduce = dunlin.StochasticReduce(1000, "complete", sync, depth, dtype="float64")
                self.assertEqual((reduce.sync, reduce.depth), (sync, depth))
                for _ in range(3):
                    model = np.full(1000, float(self.rank))
                    found = reduce.average(np.full(1000, float(self.rank)), out=model)
                    self.assertIs(found, model)
                    # Whatever was left out, it is an average of these models.
                    self.assertEqual(model.min(), model.max())
                    self.assertTrue(0 <= model[0] <= self.size - 1)
                    if sync == "notify-ack":
                        np.testing.assert_allclose(model, (self.size - 1) / 2, rtol=1e-12)
                    dunlin.barrier()
                done = reduce.statistics()
                self.assertEqual(done["reduces"], 3)
                self.assertEqual(done["inputs"] + done["torn"] + done["stale"], 3 * (self.size - 1))
                self.assertGreaterEqual(done["bytes_sent"], 3 * 8000 * (self.size - 1))
                self.assertGreaterEqual(done["waited"], 0)
                reduce.free()

    def test_one_rank_keeps_its_bits(self):
        reduce = dunlin.StochasticReduce(1000, dunlin.graph.from_edges(self.size, []))
        model = np.random.default_rng(self.rank).normal(size=1000).astype(np.float32)
        before = model.copy()
        reduce.average(model)
        np.testing.assert_array_equal(model, before)

    def test_a_model_that_was_sent_may_change(self):
        reduce = dunlin.StochasticReduce(40_000, "complete", dtype="float64")
        model, average = np.full(40_000, float(self.rank)), np.zeros(40_000)
        for step in range(10):
            request = reduce.start_average(model, out=average)
            model += 1  # the next step's model, while this one travels
            self.assertIs(request.wait(), average)
            self.assertTrue(request.test())
            np.testing.assert_allclose(average, (self.size - 1) / 2 + step, rtol=1e-12)

    def test_a_reduce_ends_while_python_computes(self):
        """test() alone: no call waits."""
        reduce = dunlin.StochasticReduce(5000, "ring", dtype="float64")
        model = np.full(5000, float(self.rank))
        request = reduce.start_average(model)
        while not request.test():
            pass
        np.testing.assert_allclose(model, (self.rank + (self.rank - 1) % self.size) / 2)

    def test_only_neighbors_wait(self):
        """Ranks that call later don't hold up those that receive nothing from them."""
        if self.size < 4:
            return
        pairs = [(0, 1), (1, 0), (2, 3), (3, 2)]
        reduce = dunlin.StochasticReduce(100, dunlin.graph.from_edges(self.size, pairs))
        model = np.full(100, self.rank, np.float32)
        if self.rank >= 2:
            dunlin.barrier()  # the others have ended their steps
        for _ in range(50):
            reduce.average(model)
        if self.rank < 2:
            dunlin.barrier()
        np.testing.assert_array_equal(model, 0.5 if self.rank < 2 else 2.5 if self.rank < 4 else self.rank)

    def test_a_neighbor_that_is_late_delays_the_average_and_not_the_caller(self):
        if self.size < 2:
            return
        reduce = dunlin.StochasticReduce(100, "complete")
        model, average = np.full(100, self.rank, np.float32), np.zeros(100, np.float32)
        if self.rank == self.size - 1:
            dunlin.barrier()
        request = reduce.start_average(model, average)
        if self.rank < self.size - 1:
            for _ in range(100):
                self.assertFalse(request.test())
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "'model'.*while the last one is in progress"):
                reduce.average(model)
            with self.assertRaises(dunlin.DeadlineExceededError) as caught:
                request.wait(timeout=0.01)
            self.assertIsNotNone(caught.exception.peer)
            dunlin.barrier()
        request.wait()
        np.testing.assert_allclose(average, (self.size - 1) / 2)

    def test_depth_limits_how_far_ahead_a_rank_is(self):
        if self.size < 2:
            return
        for depth in (1, 2, 5):
            reduce = dunlin.StochasticReduce(10, dunlin.graph.from_edges(self.size, [(0, 1)]), depth=depth)
            model = np.full(10, self.rank, np.float32)
            if self.rank == 0:
                for _ in range(depth):
                    reduce.average(model)
                request = reduce.start_average(model)
                for _ in range(100):
                    self.assertFalse(request.test())
                dunlin.barrier()
                request.wait()
            else:
                dunlin.barrier()
                for _ in range(depth + 1):
                    reduce.average(model)
            if self.rank == 1:
                np.testing.assert_allclose(model, 0.5 ** (depth + 1))

    def test_async_waits_for_none(self):
        """The other ranks make all their steps before rank 0 makes its first one. It finds their models."""
        reduce = dunlin.StochasticReduce(100, "complete", "async", dtype="float64")
        model = np.full(100, float(self.rank))
        if self.rank == 0:
            dunlin.barrier()
            while reduce.statistics()["inputs"] < self.size - 1:
                reduce.average(model)
            if self.size > 1:
                self.assertGreater(model.min(), 0)
        else:
            for _ in range(20):
                reduce.average(model)
            self.assertEqual(reduce.statistics()["reduces"], 20)
            self.assertTrue(1 <= model.min() and model.max() <= self.size - 1)
            dunlin.barrier()
        reduce.free()

    def test_arrays_of_others(self):
        """Objects with __dlpack__, and memory of the communicator."""
        reduce = dunlin.StochasticReduce(300, "complete")
        x = np.full(300, self.rank, np.float32)
        found = reduce.average(Exported(x))
        self.assertIsInstance(found, Exported)
        np.testing.assert_allclose(x, (self.size - 1) / 2)
        memory = dunlin.empty(300)
        memory[:] = self.rank
        read_only = np.full(300, self.rank, np.float32)
        read_only.flags.writeable = False
        reduce.average(read_only, out=memory)
        np.testing.assert_allclose(memory, (self.size - 1) / 2)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "read-only"):
            reduce.average(read_only)
        dunlin.free(memory)

    def test_wrong_arguments(self):
        wrong_ones = [{"count": 0}, {"count": "ten"}, {"count": -1}, {"graph": "no such graph"}, {"graph": 3},
                      {"graph": f"ring:{self.size + 1}"}, {"graph": dunlin.graph.complete(self.size + 1)},
                      {"sync": "always"}, {"depth": 0}, {"depth": 2.5}, {"weighting": "heavy"}, {"dtype": "float16"},
                      {"dtype": "no type"}, {"dtype": "int32"}, {"dtype": ">f4"}, {"dtype": np.dtype(">f8")}]
        for wrong in wrong_ones:
            with self.assertRaises(dunlin.InvalidArgumentError, msg=str(wrong)):
                dunlin.StochasticReduce(**{"count": 10, **wrong})
        if self.size > 2:
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.StochasticReduce(10, "ring", weighting="metropolis")  # edges without their reverse
        if self.size > 1:
            edges = [(0, 1)] if self.rank == 0 else [(1, 0)]
            for differs in ({"count": 10 + self.rank}, {"depth": 1 + self.rank}, {"name": f"of rank {self.rank}"},
                            {"graph": dunlin.graph.from_edges(self.size, edges)}, {"sync": MODES[self.rank % 3]}):
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "making the stochastic reduce"):
                    dunlin.StochasticReduce(**{"count": 10, **differs})
            # One rank's mistake is an error on all ranks. The next calls match.
            for mistake in wrong_ones:
                with self.assertRaises(dunlin.InvalidArgumentError, msg=str(mistake)):
                    dunlin.StochasticReduce(**{"count": 10, **(mistake if self.rank == self.size - 1 else {})})
        reduce = dunlin.StochasticReduce(10)
        for model in (np.zeros(9, np.float32), np.zeros(10)):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "10 float32"):
                reduce.average(model)
        with self.assertRaises(TypeError):
            reduce.average("model")
        model = np.zeros(11, np.float32)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "overlaps"):
            reduce.average(model[:10], out=model[1:])
        with self.assertRaises(dunlin.InvalidArgumentError):
            reduce.average(model[:10], out=np.zeros(10))
        # None of these calls sent anything.
        reduce.average(model[:10])
        self.assertEqual(reduce.statistics()["reduces"], 1)

    def test_free(self):
        reduce = dunlin.StochasticReduce(10, "complete", name="short")
        model = np.zeros(10, np.float32)
        if self.size > 1:
            if self.rank == 0:
                request = reduce.start_average(model)
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "freeing the stochastic reduce 'short'"):
                reduce.free()
            if self.rank == 0:
                request.wait()
            else:
                reduce.average(model)
        reduce.free()
        for call in (reduce.free, reduce.statistics):
            with self.assertRaisesRegex(dunlin.ClosedError, "'short' was freed"):
                call()
        with self.assertRaises(dunlin.ClosedError):
            reduce.average(model)


def setUpModule():
    dunlin.init()


if __name__ == "__main__":
    unittest.main(verbosity=1)
