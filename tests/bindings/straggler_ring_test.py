"""The straggler-aware ring, on every rank of a job: dunlin-run -n N python3 straggler_ring_test.py"""

import time
import unittest

import dunlin
import numpy as np

LATENESS = [{"late": "adaptive"}, {"late": "never"}, {"late": "fixed", "step": 0.0001, "transfer": 0.0001},
            {"late": "fixed", "step": 1e-9}]


class StragglerRingTest(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()

    def values(self, count, dtype, seed=0):
        """Small integers, so that sums don't depend on their order."""
        return [np.random.default_rng([seed, rank]).integers(1, 9, count).astype(dtype) for rank in range(self.size)]

    def test_sums_and_averages(self):
        for dtype in ("float32", "float64"):
            for count in (1, 7, 1000, 300_007):
                for number, lateness in enumerate(LATENESS):
                    with self.subTest(dtype=dtype, count=count, **lateness):
                        ring = dunlin.StragglerRing(count, dtype, average=False, **lateness)
                        self.assertEqual((ring.count, ring.dtype, ring.data.shape, ring.data.dtype.name),
                                         (count, dtype, (count,), dtype))
                        for step in range(3):
                            values = self.values(count, dtype, 10 * number + step)
                            ring.data[:] = values[self.rank]
                            self.assertIs(ring.all_reduce(), ring.data)
                            np.testing.assert_array_equal(ring.data, sum(values))
                        done = ring.statistics()
                        self.assertEqual(done["all_reduces"], 3)
                        if lateness["late"] == "never":
                            self.assertEqual(done["timeouts"] + done["skips"] + done["skipped"], 0)
                        ring.free()
        ring = dunlin.StragglerRing(50)
        values = self.values(50, "float32")
        x = values[self.rank].reshape(5, 10).copy()
        self.assertIs(ring.all_reduce(x), x)
        np.testing.assert_allclose(x.reshape(-1), sum(values) / self.size, rtol=1e-6)
        ring.free()

    def test_a_late_rank_is_not_waited_for_and_counted_once(self):
        """Rank 1 begins late. The others send their parts meanwhile, and everything is counted once."""
        ring = dunlin.StragglerRing(40_000, "float64", average=False, late="fixed", step=0.001, transfer=0.001)
        for step in range(5):
            values = self.values(40_000, "float64", step)
            ring.data[:] = values[self.rank]
            if self.rank == 1:
                time.sleep(0.05)
            ring.all_reduce()
            np.testing.assert_array_equal(ring.data, sum(values))
        late = dunlin.all_reduce(np.array([ring.statistics()["timeouts"]], "int64"))[0]
        if self.size > 2:  # with two ranks, every part goes to its owner at once
            self.assertGreater(late, 0)
        ring.free()

    def test_calls_that_continue_while_python_computes(self):
        ring = dunlin.StragglerRing(100_000)
        values = self.values(100_000, "float32")
        ring.data[:] = values[self.rank]
        if self.rank > 0:
            dunlin.barrier()
        request = ring.start_all_reduce()
        if self.rank == 0:
            if self.size > 1:  # the others have not begun
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "while the last one is in progress"):
                    ring.start_all_reduce()
            dunlin.barrier()
        self.assertIs(request.wait(), ring.data)
        np.testing.assert_allclose(ring.data, sum(values) / self.size, rtol=1e-6)
        dunlin.barrier()
        ring.free()

    def test_bad_input(self):
        for options, why in [({"count": 0}, "at least one element"), ({"count": -1}, "count"),
                             ({"dtype": "int32"}, "float32 nor float64"), ({"late": "maybe"}, "'maybe' is none of"),
                             ({"alpha": 1.0}, "alpha"), ({"late": "fixed"}, "step"), ({"step": -1.0}, "step"),
                             ({"transfer": float("nan")}, "transfer")]:
            with self.subTest(**options), self.assertRaisesRegex(dunlin.InvalidArgumentError, why):
                dunlin.StragglerRing(**{"count": 10, **options})
        if self.size > 1:
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.StragglerRing(10 + self.rank)
        ring = dunlin.StragglerRing(10)
        with self.assertRaisesRegex(ValueError, "x has 9 elements, but the ring has 10"):
            ring.all_reduce(np.zeros(9))
        data = ring.data
        ring.free()
        with self.assertRaises(dunlin.ClosedError):
            ring.all_reduce()
        data[:] = 1  # stays valid


if __name__ == "__main__":
    dunlin.init()
    unittest.main()
