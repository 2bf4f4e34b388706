"""Averages with and gathers from neighbors, against NumPy, on every rank of a job:

    dunlin-run -n N python3 neighbor_test.py
"""

import itertools
import time
import unittest

import dunlin
import numpy as np
from collectives_test import Exported, from_bfloat16, to_bfloat16
from dunlin import graph

FLOATS = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-15}
TYPES = ["int8", "uint8", "int32", "int64", *FLOATS]


def graphs(nodes):
    """All families of graphs that exist for this number of nodes."""
    for name, _, _ in graph.families():
        for spec in (name, f"{name}:2x{nodes // 2}", f"{name}:2"):
            if name == "file":
                continue
            try:
                yield graph.make(spec, nodes)
                break
            except dunlin.Error:
                pass


def values(rank, shape, dtype, salt=0):
    """The input of any rank, computed on any rank."""
    random = np.random.default_rng(1000 * salt + rank)
    if np.dtype(dtype).kind in "iu":
        return random.integers(0, 100, size=shape).astype(dtype)
    return np.asarray(random.uniform(0.5, 1.5, size=shape)).astype(dtype)


def average(sources, self_weight, shape, dtype, salt=0, pushed=None):
    """The average of values(). pushed: the weights that the sources give this rank."""
    result = self_weight * values(dunlin.rank(), shape, dtype, salt).astype("float64")
    for source, weight in sources.items():
        result = result + weight * (pushed or {}).get(source, 1) * values(source, shape, dtype, salt).astype("float64")
    return result


class NeighborTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()
        self.right = (self.rank + 1) % self.size
        self.left = (self.rank - 1) % self.size
        self.ring = ([self.left], [self.right]) if self.size > 1 else ([], [])

    def close(self, found, expected, tolerance):
        self.assertEqual(found.shape, expected.shape)
        np.testing.assert_allclose(found.astype("float64"), expected, rtol=tolerance, atol=0)

    def test_all_graphs(self):
        made = list(graphs(self.size)) if self.size > 1 else []
        if self.size == 8:
            self.assertEqual(len(made), len(graph.families()) - 1)
        for number, one in enumerate(made):
            own, others = one.weights(self.rank)
            send_to = one.out_neighbors(self.rank)
            for dtype, tolerance in FLOATS.items():
                for size in (7, 5000):
                    x = values(self.rank, size, dtype, number)
                    found = dunlin.neighbor_average(x, others, send_to, own, name=one.spec)
                    self.assertEqual(found.dtype, x.dtype)
                    # All weights are positive, so errors are relative to the sum.
                    self.close(found, average(others, own, size, dtype, number), tolerance)
                    again = dunlin.neighbor_average(x, others, send_to, own, name=one.spec, out=x)
                    self.assertIs(again, x)
                    self.assertEqual(again.tobytes(), found.tobytes())  # bitwise the same in place
            parts = dunlin.neighbor_gather(values(self.rank, (self.rank + 1, 3), "int32"), others, send_to)
            for source, part in zip(others, parts, strict=True):
                np.testing.assert_array_equal(part, values(source, (source + 1, 3), "int32"))

    def test_pushed_weights(self):
        sources, destinations = self.ring
        found = dunlin.neighbor_average(values(self.rank, (3, 4), "float64"), {each: 0.25 for each in sources},
                                        {each: self.rank + 1.0 for each in destinations}, 0.5)
        expected = average({each: 0.25 for each in sources}, 0.5, (3, 4), "float64",
                           pushed={self.left: self.left + 1.0})
        self.close(found, expected, 1e-15)

    def test_one_peer_graphs(self):
        if self.size < 2:
            return
        generators = [graph.one_peer(graph.ring(self.size), self.rank),
                      graph.one_peer_exponential(self.size, self.rank)]
        if self.size % 4 == 0:
            generators.append(graph.inner_outer_exponential(self.size, 4, self.rank))
        for generator in generators:
            x = values(self.rank, 100, "float64")
            everything = np.stack([values(rank, 100, "float64") for rank in range(self.size)])
            for send_to, receive_from in itertools.islice(generator, 12):
                weight = 1 / (len(receive_from) + 1)
                x = dunlin.neighbor_average(x, dict.fromkeys(receive_from, weight), send_to, weight)
                expected = np.empty_like(everything)
                all_from = self.all_lists(receive_from)
                for rank, sources in enumerate(all_from):
                    expected[rank] = everything[[rank, *sources]].sum(axis=0) / (len(sources) + 1)
                everything = expected
                self.close(x, everything[self.rank], 1e-13)

    def all_lists(self, own):
        """The list of ranks of every rank."""
        marks = np.zeros(self.size, np.int8)
        marks[own] = 1
        return [list(np.flatnonzero(row)) for row in dunlin.all_gather(marks)]

    def test_no_neighbors(self):
        """Calls without neighbors are over at once, and need no other rank."""
        x = values(self.rank, 1 + 100 * self.rank, "float32")
        self.close(dunlin.neighbor_average(x, {}, {}, 0.5), 0.5 * x.astype("float64"), 1e-6)
        np.testing.assert_array_equal(dunlin.neighbor_average(x), x)
        self.assertEqual(dunlin.neighbor_gather(x), [])
        if self.rank == 0:
            dunlin.neighbor_average(x, name="of rank 0 alone")

    def test_arrays_without_axes_or_elements(self):
        sources, destinations = self.ring
        expected = self.rank + sum(sources)
        found = dunlin.neighbor_average(np.array(float(self.rank)), sources, destinations)
        self.assertEqual((found.shape, found), ((), expected))
        for shape in ((0,), (0, 3), (3, 0)):
            found = dunlin.neighbor_average(np.zeros(shape), sources, destinations, 0.5)
            self.assertEqual(found.shape, shape)
            for part in dunlin.neighbor_gather(np.zeros(shape), sources, destinations):
                self.assertEqual(part.shape, (0, *shape[1:]))
        for part in dunlin.neighbor_gather(np.array(self.rank, np.int8), sources, destinations):
            self.assertEqual((part.shape, part.dtype, part[0]), ((1,), np.int8, self.left))
        # Some ranks have no rows.
        count = self.rank % 2
        for part in dunlin.neighbor_gather(values(self.rank, (count, 5), "float64"), sources, destinations):
            np.testing.assert_array_equal(part, values(self.left, (self.left % 2, 5), "float64"))

    def test_gathers_of_all_types(self):
        others = [rank for rank in range(self.size) if rank != self.rank]
        backwards = others[::-1]
        for dtype in TYPES:
            x = values(self.rank, 10 + 3000 * self.rank, dtype)
            parts = dunlin.neighbor_gather(x, backwards, others)
            for source, part in zip(backwards, parts, strict=True):
                self.assertEqual(part.dtype, x.dtype)
                np.testing.assert_array_equal(part, values(source, 10 + 3000 * source, dtype))

    def test_bfloat16(self):
        """bfloat16 by DLPack, as NumPy has no such type."""
        sources, destinations = self.ring
        for size in (300, 40000):
            x = to_bfloat16(values(self.rank, size, "float32"))
            out = np.zeros_like(x)
            dunlin.neighbor_average(Exported(x, bfloat16=True), {each: 0.5 for each in sources}, destinations, 0.5,
                                    out=Exported(out, bfloat16=True))
            expected = 0.5 * from_bfloat16(x)
            for each in sources:
                expected = expected + 0.5 * from_bfloat16(to_bfloat16(values(each, size, "float32")))
            self.close(from_bfloat16(out), expected, 2 ** -8)

    def test_many_at_a_time_waited_for_in_another_order(self):
        order = np.random.default_rng(7 + self.rank)
        wait_order = np.random.default_rng(70 + self.rank)
        others = [rank for rank in range(self.size) if rank != self.rank]
        sizes = [int(size) for size in np.random.default_rng(3).integers(1, 30000, 50)]
        requests = {}
        # Each rank starts them in a different order: calls are matched by name.
        for number in order.permutation(50):
            requests[number] = dunlin.start_neighbor_average(
                values(self.rank, sizes[number], "float64", number), others, others, 2.0, name=f"layer {number}")
        for number in wait_order.permutation(50):
            found = requests[number].wait()
            self.close(found, average(dict.fromkeys(others, 1), 2, sizes[number], "float64", number), 1e-15)
            self.assertTrue(requests[number].test())
            self.assertIs(requests[number].wait(), found)

    def test_names_used_again_with_other_shapes(self):
        sources, destinations = self.ring
        for number, shape in enumerate([(3,), (500, 20), (), (0,), (70000,), (2, 2)] * 3):
            dtype = ["float64", "float32"][number % 2]
            found = dunlin.neighbor_average(values(self.rank, shape, dtype, number), sources, destinations, name="one")
            self.close(found, average(dict.fromkeys(sources, 1), 1, shape, dtype, number), 1e-6)

    def test_dropped_requests_go_on(self):
        sources, destinations = self.ring
        out = [np.zeros(20000) for _ in range(5)]
        for number in range(5):
            dunlin.start_neighbor_average(values(self.rank, 20000, "float64", number), sources, destinations,
                                          out=out[number])
        for number in range(5):
            expected = average(dict.fromkeys(sources, 1), 1, 20000, "float64", number)
            deadline = time.monotonic() + 20
            while not np.allclose(out[number], expected, rtol=1e-15) and time.monotonic() < deadline:
                time.sleep(0.001)
            self.close(out[number], expected, 1e-15)

    def test_check_neighbors(self):
        sources, destinations = self.ring
        dunlin.check_neighbors(sources, destinations)
        if self.size < 2:
            return
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "rank 0 sends to rank 1, which does not expect it"):
            dunlin.check_neighbors([] if self.rank == 1 else sources, destinations)
        with self.assertRaises(dunlin.Error):
            dunlin.check_neighbors([self.size] if self.rank == 0 else sources, destinations)
        dunlin.check_neighbors(sources, destinations)

    def test_mistakes(self):
        with self.assertRaisesRegex(TypeError, "sources"):
            dunlin.neighbor_average(np.ones(3), ["a"])
        with self.assertRaises(TypeError):
            dunlin.neighbor_average(np.ones(3), 1)
        with self.assertRaises(dunlin.InvalidArgumentError):
            dunlin.neighbor_average(np.ones(3), [self.rank])
        with self.assertRaises(dunlin.OutOfRangeError):
            dunlin.neighbor_gather(np.ones(3), (), [self.size])
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "floating-point"):
            dunlin.neighbor_average(np.ones(3, int))
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "out: 4 elements"):
            dunlin.neighbor_average(np.ones(3), out=np.ones(4))
        both = np.ones(4)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "overlap"):
            dunlin.neighbor_average(both[:3], out=both[1:])

    def test_neighbors_that_differ(self):
        if self.size != 2:
            return
        sources, destinations = self.ring
        for shape in ((3 + self.rank,), (2, 3)[: 1 + self.rank]):
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.neighbor_average(np.ones(shape), sources, destinations, name="sizes")
            dunlin.barrier()
        with self.assertRaises(dunlin.InvalidArgumentError):
            dunlin.neighbor_gather(np.ones((6, 4) if self.rank else (8, 3)), sources, destinations, name="axes")
        dunlin.barrier()
        with self.assertRaises(dunlin.InvalidArgumentError):
            dunlin.neighbor_gather(np.ones(3, ["int32", "float32"][self.rank]), sources, destinations, name="types")
        dunlin.barrier()

    def test_a_wait_that_ends_early(self):
        if self.size < 2:
            return
        sources, destinations = self.ring
        dunlin.barrier()
        if self.rank == 0:
            request = dunlin.start_neighbor_average(np.ones(3), sources, destinations, name="late")
            with self.assertRaises(dunlin.DeadlineExceededError):
                request.wait(timeout=0.1)
            dunlin.barrier()
        else:
            dunlin.barrier()
            request = dunlin.start_neighbor_average(np.ones(3), sources, destinations, name="late")
        np.testing.assert_array_equal(request.wait(), [2, 2, 2])


def setUpModule():
    dunlin.init()


if __name__ == "__main__":
    unittest.main(verbosity=1)
