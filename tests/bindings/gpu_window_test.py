"""Windows in the memory of a GPU, on the stand-in for CUDA's driver: their results are those of windows in host memory.

    LD_LIBRARY_PATH=BUILD/tests/fake_cuda dunlin-run -n N python3 gpu_window_test.py
"""

import gc
import threading
import types
import unittest

import dunlin
import gpu_arrays as gpu
import numpy as np
from gpu_arrays import Exporting, Interfaced, elements


def write(array, values):
    """Sets an array of the package on the GPU."""
    memory = types.SimpleNamespace(address=array.__cuda_array_interface__["data"][0])
    Interfaced(np.asarray(values, array.dtype), memory=memory)


class GpuWindowTest(unittest.TestCase):
    """All ranks run every test, with neighbors in a ring."""

    @classmethod
    def setUpClass(cls):
        dunlin.init()
        cls.rank, cls.size = dunlin.rank(), dunlin.size()
        cls.sources = sorted({(cls.rank - 1) % cls.size, (cls.rank + 1) % cls.size} - {cls.rank})
        gpu.use(0)

    def windows(self, values, **options):
        """(in host memory, on the GPU)"""
        package = Exporting if values.size % 2 else Interfaced
        return (dunlin.Window(values, self.sources, self.sources, name="host", **options),
                dunlin.Window(package(values), self.sources, self.sources, name="gpu", **options))

    def test_results_are_those_of_host_memory(self):
        random = np.random.default_rng(self.rank)
        for dtype in ("float32", "float64"):
            for shape in ((0,), (7,), (100, 301)):
                host, there = self.windows(random.normal(size=shape).astype(dtype), zero_init=shape == (7,))
                for index in range(3):
                    weights = {rank: 0.25 + index for rank in self.sources}
                    for window in (host, there):
                        window.put(weights)
                        window.accumulate(weights, self_weight=0.5)
                        window.flush()
                    dunlin.barrier()
                    self.assertEqual(host.versions(), there.versions())
                    for rank in self.sources:
                        np.testing.assert_array_equal(elements(there.buffer(rank)), host.buffer(rank))
                        self.assertEqual(there.buffer_p(rank), host.buffer_p(rank))
                    dunlin.barrier()
                    for window in (host, there):
                        window.get(weights)
                    dunlin.barrier()  # an update publishes its result
                    self.assertIs(there.update(), there.tensor)
                    host.update()
                    np.testing.assert_array_equal(elements(there.tensor), host.tensor)
                    result = Interfaced(np.zeros(shape, dtype))
                    self.assertIs(there.update(0.5, weights, out=result), result)
                    np.testing.assert_array_equal(result.read(), host.update(0.5, weights, out=np.zeros(shape, dtype)))
                    there.update_then_collect()
                    np.testing.assert_array_equal(elements(there.tensor), host.update_then_collect())
                    self.assertEqual(there.p, host.p)
                    dunlin.barrier()
                for window in (host, there):
                    window.free()

    def test_the_tensor_is_an_array_that_stays_valid(self):
        window = dunlin.Window(Interfaced(np.full((3, 5), self.rank, "float32")), self.sources, self.sources)
        tensor = window.tensor
        self.assertIsInstance(tensor, dunlin.GpuArray)
        self.assertEqual((tensor.shape, tensor.dtype, tensor.device), ((3, 5), "float32", 0))
        write(tensor, np.full((3, 5), 10 + self.rank, "float32"))
        window.put()
        window.flush()
        dunlin.barrier()
        for rank in self.sources:
            np.testing.assert_array_equal(elements(window.buffer(rank)), 10 + rank)
        dunlin.barrier()
        window.free()
        with self.assertRaises(dunlin.ClosedError):
            window.put()
        np.testing.assert_array_equal(elements(tensor), 10 + self.rank)

    def test_the_initial_tensor_is_waited_for(self):
        stream = gpu.Stream()
        x = Interfaced(np.zeros(30_000, "float32"), stream=stream)
        open_gate = stream.gate()
        x.write(np.ones(30_000, "float32"), stream)
        threading.Timer(0.1, open_gate).start()
        window = dunlin.Window(x, self.sources, self.sources)
        np.testing.assert_array_equal(elements(window.tensor), 1)
        window.free()

    def test_bad_input(self):
        on_gpu = Interfaced(np.ones(10, "float32"))
        window = dunlin.Window(on_gpu, self.sources, self.sources)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "the array is in the memory of the host, but"):
            window.update(out=np.zeros(10, "float32"))
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "overlaps the tensor"):
            window.update(out=window.tensor)
        window.free()
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "float32 or float64"):
            dunlin.Window(Interfaced(np.ones(10, "int32")), self.sources, self.sources)
        if self.size > 1:
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.Window(on_gpu if self.rank == 0 else np.ones(10, "float32"), self.sources, self.sources)
        dunlin.barrier()

    def test_freed_windows_leave_no_streams(self):
        x = Interfaced(np.ones(10, "float32"))
        dunlin.Window(x, self.sources, self.sources).free()
        gc.collect()
        streams = gpu.counts()[2]
        for _ in range(3):
            dunlin.Window(x, self.sources, self.sources).free()
        gc.collect()
        self.assertEqual(gpu.counts()[2], streams)


if __name__ == "__main__":
    unittest.main()
