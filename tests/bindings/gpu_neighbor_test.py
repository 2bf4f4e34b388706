"""Averages with neighbors on the memory of a GPU, on the stand-in for CUDA's driver: their results are those of host
memory.

    LD_LIBRARY_PATH=BUILD/tests/fake_cuda dunlin-run -n N python3 gpu_neighbor_test.py
"""

import time
import unittest

import dunlin
import gpu_arrays as gpu
import numpy as np
from gpu_arrays import Exporting, Interfaced, elements


class GpuNeighborTest(unittest.TestCase):
    """All ranks run every test, with neighbors in a ring."""

    @classmethod
    def setUpClass(cls):
        dunlin.init()
        cls.rank, cls.size = dunlin.rank(), dunlin.size()
        cls.neighbors = sorted({(cls.rank - 1) % cls.size, (cls.rank + 1) % cls.size} - {cls.rank})
        gpu.use(0)

    def values(self, shape, dtype, seed=0):
        return np.random.default_rng([seed, self.rank]).normal(size=shape).astype(dtype)

    def test_results_are_those_of_host_memory(self):
        sources = {rank: 0.25 + rank for rank in self.neighbors}
        destinations = {rank: 0.5 for rank in self.neighbors}
        for dtype in ("float16", "float32", "float64"):
            for shape in ((0,), (1,), (30, 7), (1_300_003,)):
                for package in (Interfaced, Exporting):
                    values = self.values(shape, dtype)
                    expected = dunlin.neighbor_average(values, sources, destinations, 0.5)
                    x = package(values)
                    result = dunlin.neighbor_average(x, sources, destinations, 0.5)
                    self.assertIsInstance(result, dunlin.GpuArray)
                    np.testing.assert_array_equal(elements(result), expected, err_msg=str((dtype, shape)))
                    np.testing.assert_array_equal(elements(x), values)
                    self.assertIs(dunlin.neighbor_average(x, sources, destinations, 0.5, out=x), x)
                    np.testing.assert_array_equal(elements(x), expected)

    def test_many_calls_at_a_time(self):
        arrays = [Interfaced(self.values(100 * number, "float32", number)) for number in range(20)]
        requests = [dunlin.start_neighbor_average(each, self.neighbors, self.neighbors, name=f"layer {number}")
                    for number, each in enumerate(arrays)]
        for number in reversed(range(20)):
            values = self.values(100 * number, "float32", number)
            expected = dunlin.neighbor_average(values, self.neighbors, self.neighbors, name=f"layer {number}")
            np.testing.assert_array_equal(elements(requests[number].wait()), expected)

    def test_calls_come_behind_the_streams_of_their_arrays(self):
        """Nobody waits for the stream, and the call has what the stream's work writes."""
        expected = dunlin.neighbor_average(np.ones(30_000, "float32"), self.neighbors, self.neighbors)
        for package in (Interfaced, Exporting):
            x = package(np.zeros(30_000, "float32"), stream=gpu.Stream())
            open_gate = x.stream.gate()
            x.write(np.ones(30_000, "float32"), x.stream)
            request = dunlin.start_neighbor_average(x, self.neighbors, self.neighbors)
            until = time.monotonic() + 0.1
            while self.size > 1 and time.monotonic() < until:
                self.assertFalse(request.test())
            open_gate()
            np.testing.assert_array_equal(elements(request.wait()), expected)
            # The former contents of the array of the result are still read.
            out = package(np.full(30_000, 7, "float32"), stream=gpu.Stream())
            open_gate = out.stream.gate()
            request = dunlin.start_neighbor_average(x, self.neighbors, self.neighbors, out=out)
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                self.assertFalse(request.test())
            np.testing.assert_array_equal(elements(out), 7)
            open_gate()
            request.wait()
            np.testing.assert_array_equal(elements(out), expected)

    def test_bad_input(self):
        x = Interfaced(np.ones(10, "float32"))
        dunlin.neighbor_average(x)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "of GPU 1, but averages with neighbors use GPU 0"):
            dunlin.neighbor_average(Interfaced(np.ones(10, "float32"), device=1))
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "the array is in the memory of the host, but"):
            dunlin.neighbor_average(x, out=np.ones(10, "float32"))
        with self.assertRaises(dunlin.InvalidArgumentError):
            dunlin.neighbor_average(Interfaced(np.ones(10, "int32")))
        if self.size > 1 and self.rank < 2:
            y = Interfaced(np.ones(10 + self.rank, "float32"))
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.neighbor_average(y, [1 - self.rank], [1 - self.rank], name="of different sizes")
        dunlin.barrier()


if __name__ == "__main__":
    unittest.main()
