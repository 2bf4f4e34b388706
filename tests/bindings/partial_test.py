"""Partial all-reduces and averages in groups, on every rank of a job:

    dunlin-run -n N python3 partial_test.py
"""

import itertools
import unittest

import dunlin
import numpy as np
from collectives_test import Exported

OPERATIONS = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "avg": np.mean}
TYPES = {"int8": 0, "uint8": 0, "int32": 0, "int64": 0, "float16": 5e-3, "float32": 1e-5, "float64": 1e-13}
SOURCES = ["smart", "static", "random", "buffered"]


def values(rank, shape, dtype):
    """The input of any rank, computed on any rank. Products of a few fit into every type."""
    return (np.random.default_rng(rank).integers(1, 3, size=shape)).astype(dtype)


class PartialTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()
        self.all_ranks = list(range(self.size))

    def groups(self):
        """All groups of two ranks or more, numbered in their order."""
        for members in range(2, self.size + 1):
            yield from itertools.combinations(self.all_ranks, members)

    def test_all_groups_one_after_the_other(self):
        model = np.full(1000, float(self.rank))
        everything = np.tile(np.arange(self.size, dtype=float)[:, None], 1000)
        for number, group in enumerate(self.groups(), start=1):
            everything[list(group)] = everything[list(group)].mean(axis=0)
            if self.rank in group:
                # Members may give the ranks in any order.
                ranks = sorted(group, key=lambda rank: (rank - self.rank) % self.size)
                found = dunlin.partial_all_reduce(model, ranks, name="all groups", number=number, out=model)
                self.assertIs(found, model)
        np.testing.assert_allclose(model, everything[self.rank], rtol=1e-12)

    def test_types_and_operations(self):
        # Each rank with its neighbor, with counted calls.
        first = self.rank // 2 * 2
        group = [rank for rank in (first, first + 1) if rank < self.size]
        for (dtype, tolerance), shape in itertools.product(TYPES.items(), [(7, 3), (40_000,)]):
            for op, reference in OPERATIONS.items():
                x = values(self.rank, shape, dtype)
                found = dunlin.partial_all_reduce(x, group, op)
                expected = reference([values(rank, shape, "float64") for rank in group], axis=0)
                if not tolerance:
                    expected = np.floor(expected)  # integer averages are rounded down
                self.assertEqual((found.shape, found.dtype), (shape, np.dtype(dtype)))
                np.testing.assert_allclose(found.astype("float64"), expected, rtol=tolerance)
                np.testing.assert_array_equal(x, values(self.rank, shape, dtype))

    def test_arrays_of_others(self):
        """Objects with __dlpack__, and memory of the communicator."""
        x = np.full(300, self.rank, np.float32)
        found = dunlin.partial_all_reduce(Exported(x), self.all_ranks, out=Exported(x))
        self.assertIsInstance(found, Exported)
        self.assertEqual(x[299], (self.size - 1) / 2)
        memory = dunlin.empty(300)
        memory[:] = self.rank
        dunlin.partial_all_reduce(memory, self.all_ranks, "max", out=memory)
        self.assertEqual(memory[5], self.size - 1)
        dunlin.free(memory)

    def test_started(self):
        x = [np.full(5000, self.rank * k, np.float32) for k in range(10)]
        requests = [dunlin.start_partial_all_reduce(each, self.all_ranks, "sum", "started") for each in x]
        for k in reversed(range(10)):
            np.testing.assert_array_equal(requests[k].wait(), k * sum(self.all_ranks))
            self.assertTrue(requests[k].test())

    def test_disjoint_groups_may_share_numbers(self):
        mine = [rank for rank in self.all_ranks if rank % 2 == self.rank % 2]
        for number in (1, 5):
            found = dunlin.partial_all_reduce(np.array([self.rank]), mine, "sum", "halves", number)
            self.assertEqual(found[0], sum(mine))

    def test_alone(self):
        """A group of one rank needs no other rank."""
        if self.rank == 0:
            found = dunlin.partial_all_reduce(np.arange(5.0), [0], "sum", "alone")
            np.testing.assert_array_equal(found, np.arange(5.0))

    def test_wrong_arguments(self):
        x = np.ones(4)
        reduce = dunlin.partial_all_reduce
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "no member"):
            reduce(x, [])
        with self.assertRaisesRegex(dunlin.OutOfRangeError, f"member {self.size}"):
            reduce(x, [self.rank, self.size])
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "twice"):
            reduce(x, [self.rank, self.rank])
        for number in (0, -1):
            with self.assertRaises(ValueError):
                reduce(x, [self.rank], number=number)
        reduce(x, [self.rank], name="wrong", number=7)
        for number in (6, 7, 1 << 40):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "numbers grow"):
                reduce(x, [self.rank], name="wrong", number=number)
        with self.assertRaises(dunlin.InvalidArgumentError):
            reduce(x, [self.rank], op="median")
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "overlaps"):
            reduce(x[:3], [self.rank], out=x[1:])
        with self.assertRaises(TypeError):
            reduce("x", [self.rank])
        with self.assertRaises(TypeError):
            reduce(x, ["everybody"])

    def test_members_that_differ_are_told(self):
        if self.size == 1:
            return
        for _ in range(2):
            with self.assertRaises(dunlin.InvalidArgumentError) as caught:
                dunlin.partial_all_reduce(np.ones(3 if self.rank == 0 else 4), self.all_ranks, name="differs")
            self.assertIn(caught.exception.peer, self.all_ranks)
        found = dunlin.partial_all_reduce(np.ones(3), self.all_ranks, "sum", "differs")
        self.assertEqual(found[0], self.size)


class GroupAverageTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()

    def test_averages_keep_the_sum(self):
        for source, layout in itertools.product(SOURCES, [None, (1, self.size), (self.size, 1)]):
            with self.subTest(source=source, layout=layout):
                groups = dunlin.GroupAverage(1000, source, group_size=2, layout=layout, name="kept")
                self.assertEqual((groups.source, groups.count, groups.name), (source, 1000, "kept"))
                model = np.full((10, 100), self.rank + 1, np.float32)
                for _ in range(30):
                    self.assertIs(groups.average(model), model)
                statistics = groups.statistics()
                self.assertEqual(statistics["iterations"], 30)
                self.assertGreaterEqual(statistics["members"], 2 * statistics["groups"])
                # In a group of two, each rank sends one model, and in any group fewer than two.
                models = statistics["bytes_sent"] / model.nbytes
                self.assertTrue(statistics["groups"] <= models <= 2 * statistics["groups"], statistics)
                self.assertEqual(statistics["server"], None if source == "static" else 0)
                if self.size > 1:
                    self.assertGreater(statistics["groups"], 0)
                groups.leave()
                groups.leave()
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "has left"):
                    groups.average(model)
                total = dunlin.all_reduce(model.astype("float64"))
                np.testing.assert_allclose(total, self.size * (self.size + 1) / 2, rtol=1e-5)
                # All ranks had left before any rank came here. The rank that forms groups tells the others.
                while source != "static" and not groups.is_over():
                    pass
                self.assertEqual(groups.is_over(), source != "static")

    def test_all_workers_of_a_node(self):
        groups = dunlin.GroupAverage(3, "static", layout=(1, self.size))
        model = np.full(3, self.rank, np.float32)
        self.assertIs(groups.average(model, 1), model)
        np.testing.assert_array_equal(model, (self.size - 1) / 2)

    def test_started_and_computed_meanwhile(self):
        groups = dunlin.GroupAverage(50_000)
        model = np.full(50_000, self.rank, np.float32)
        for iteration in range(10):
            request = groups.start_average(model, 3 * iteration)
            self.assertIs(request.wait(), model)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "after that of a later one"):
            groups.average(model, 5)
        groups.leave()
        total = dunlin.all_reduce(model.astype("float64"))
        np.testing.assert_allclose(total, sum(range(self.size)), rtol=1e-5)

    def test_a_refused_call_is_no_iteration(self):
        groups = dunlin.GroupAverage(3, "static", layout=(1, self.size))
        model = np.full(3, self.rank, np.float32)
        groups.average(model)  # the schedule leaves the rank alone; the next average needs all ranks
        if self.size > 1 and self.rank == 0:
            request = groups.start_average(model)
            for _ in range(3):
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "while the last one is in progress"):
                    groups.average(np.zeros(3, np.float32))
            dunlin.barrier()
            request.wait()
        else:
            dunlin.barrier()
            groups.average(model)
        groups.average(model)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "iteration 2"):
            groups.average(model, 2)

    def test_ranks_go_at_their_own_pace(self):
        """A rank that has left is in no group. The others continue without it."""
        groups = dunlin.GroupAverage(100, name="pace")
        model = np.full(100, self.rank, np.float32)
        for _ in range(5 * (self.rank + 1)):
            groups.average(model)
        groups.leave()
        dunlin.barrier()
        self.assertEqual(groups.statistics()["iterations"], 5 * (self.rank + 1))
        total = dunlin.all_reduce(model.astype("float64"))
        np.testing.assert_allclose(total, sum(range(self.size)), rtol=1e-5)

    def test_wrong_arguments(self):
        for wrong in ({"source": "clever"}, {"layout": (self.size + 1, 1)}, {"slowdown_threshold": 0}):
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.GroupAverage(10, **wrong)
        if self.size > 1:
            for differs in ({"count": 10 + self.rank}, {"count": 10, "seed": 1 + self.rank},
                            {"count": 10, "name": f"of rank {self.rank}"}):
                with self.assertRaises(dunlin.InvalidArgumentError):
                    dunlin.GroupAverage(**differs)
            # One rank's mistake is an error on all ranks. The next calls match.
            for mistake in ({"source": "clever"}, {"count": "ten"}, {"layout": 3}):
                with self.assertRaises(dunlin.InvalidArgumentError):
                    dunlin.GroupAverage(**{"count": 10, **(mistake if self.rank == self.size - 1 else {})})
        groups = dunlin.GroupAverage(10)
        for model in (np.zeros(9, np.float32), np.zeros(10)):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "10 float32"):
                groups.average(model)
        read_only = np.zeros(10, np.float32)
        read_only.flags.writeable = False
        with self.assertRaises((TypeError, ValueError, dunlin.Error)):
            groups.average(read_only)
        # None of these calls averaged.
        groups.average(np.zeros(10, np.float32))
        groups.leave()


def setUpModule():
    dunlin.init()


if __name__ == "__main__":
    unittest.main(verbosity=1)
