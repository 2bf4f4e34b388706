"""Averages of models in the memory of a GPU, on the stand-in for CUDA's driver: StochasticReduce, GroupAverage and
partial_all_reduce. Their results have the bits that they have in host memory.

    LD_LIBRARY_PATH=BUILD/tests/fake_cuda dunlin-run -n N python3 gpu_model_test.py
"""

import contextlib
import gc
import itertools
import unittest

import dunlin
import gpu_arrays as gpu
import numpy as np
from gpu_arrays import Exporting, Interfaced, elements

COUNT = 30_000


class GpuModelTest(unittest.TestCase):
    """All ranks run every test."""

    @classmethod
    def setUpClass(cls):
        dunlin.init()
        cls.rank, cls.size = dunlin.rank(), dunlin.size()
        gpu.use(0)

    def values(self, dtype="float32", count=COUNT, seed=0):
        return np.random.default_rng([seed, self.rank]).normal(size=count).astype(dtype)

    def expect(self, array, expected):
        np.testing.assert_array_equal(elements(array), expected)

    @contextlib.contextmanager
    def within_the_gpu(self):
        """Nothing passes through host memory."""
        before = gpu.counts()[1]
        yield
        self.assertEqual(gpu.counts()[1], before)

    def expect_order_of_streams(self, start):
        """start(x) starts an average of x in place, which has to come behind the work of x's stream, without waiting."""
        for package in (Interfaced, Exporting):
            x = package(np.zeros(COUNT, "float32"), stream=gpu.Stream())
            open_gate = x.stream.gate()
            x.write(np.full(COUNT, self.rank, "float32"), x.stream)
            request = start(x)
            self.assertFalse(request.test())
            open_gate()
            self.assertIs(request.wait(), x)
            self.expect(x, np.full(COUNT, (self.size - 1) / 2, "float32"))

    # StochasticReduce

    def test_stochastic_reduces(self):
        for dtype in ("float32", "float64"):
            with self.subTest(dtype=dtype):
                on_gpu = dunlin.StochasticReduce(COUNT, "ring", dtype=dtype, gpu=0)
                on_host = dunlin.StochasticReduce(COUNT, "ring", dtype=dtype)
                self.assertEqual((on_gpu.gpu, on_host.gpu), (0, None))
                values = self.values(dtype)
                x, out = Interfaced(values), Exporting(np.zeros_like(values))
                for _ in range(3):
                    values = on_host.average(values)
                    with self.within_the_gpu():
                        self.assertIs(on_gpu.average(x), x)
                self.expect(x, values)
                expected = on_host.average(values.copy())
                self.assertIs(on_gpu.start_average(x, out=out).wait(), out)
                self.expect(out, expected)
                self.expect(x, values)
                statistics = on_gpu.statistics()
                self.assertEqual(statistics["reduces"], 4)
                self.assertEqual(statistics["bytes_sent"], on_host.statistics()["bytes_sent"])
                on_gpu.free()
                on_host.free()

    def test_stochastic_reduces_come_behind_the_streams_of_their_arrays(self):
        reduce = dunlin.StochasticReduce(COUNT, "complete", gpu=0)
        self.expect_order_of_streams(reduce.start_average)
        reduce.free()

    def test_an_average_that_is_waited_for_too_short_continues(self):
        reduce = dunlin.StochasticReduce(COUNT, "complete", gpu=0)
        x = Interfaced(np.full(COUNT, self.rank, "float32"), stream=gpu.Stream())
        open_gate = x.stream.gate()
        request = reduce.start_average(x)
        with self.assertRaisesRegex(dunlin.DeadlineExceededError, "copies of the model on its GPU"):
            request.wait(0.1)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "while the last one is in progress"):
            reduce.start_average(x)
        dunlin.barrier()
        open_gate()
        request.wait()
        self.expect(x, np.full(COUNT, (self.size - 1) / 2, "float32"))
        reduce.free()

    def test_wrong_memory_and_wrong_arguments(self):
        for name, make in {"StochasticReduce": lambda **options: dunlin.StochasticReduce(10, "complete", **options),
                           "GroupAverage": lambda **options: dunlin.GroupAverage(10, **options)}.items():
            with self.subTest(name):
                on_gpu, on_host = make(gpu=0), make()
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "memory of the host, but .* of GPU 0"):
                    on_gpu.average(np.zeros(10, "float32"))
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "memory of GPU 0, but .* of the host"):
                    on_host.average(Interfaced(np.zeros(10, "float32")))
                with self.assertRaisesRegex(dunlin.InvalidArgumentError, "memory of GPU 1, but .* of GPU 0"):
                    on_gpu.average(Interfaced(np.zeros(10, "float32"), device=1))
                for wrong in (99, -1):
                    with self.assertRaisesRegex(dunlin.Error, str(wrong)):
                        make(gpu=wrong)
                with self.assertRaises(dunlin.InvalidArgumentError):
                    make(gpu="0")
                if self.size > 1:
                    with self.assertRaisesRegex(dunlin.InvalidArgumentError, "its arguments differ"):
                        make(gpu=None if self.rank == 0 else 0)
                (on_gpu.leave if name == "GroupAverage" else on_gpu.free)()
        for sync in ("bsp", "async"):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "need the mode notify-ack"):
                dunlin.StochasticReduce(10, "complete", sync, gpu=0)

    # GroupAverage

    def test_group_averages(self):
        on_gpu = dunlin.GroupAverage(COUNT, "static", group_size=2, gpu=0)
        on_host = dunlin.GroupAverage(COUNT, "static", group_size=2)
        self.assertEqual((on_gpu.gpu, on_host.gpu), (0, None))
        values = self.values()
        x = Interfaced(values)
        for _ in range(5):
            on_host.average(values)
            with self.within_the_gpu():
                self.assertIs(on_gpu.average(x), x)
        self.expect(x, values)
        self.assertEqual(on_gpu.statistics()["groups"], on_host.statistics()["groups"])
        on_gpu.leave()
        on_host.leave()

    def test_groups_that_are_formed_as_ranks_arrive(self):
        groups = dunlin.GroupAverage(COUNT, "smart", group_size=max(self.size, 2), gpu=0)
        x = Exporting(np.full(COUNT, self.rank, "float32"))
        for _ in range(5):
            groups.start_average(x).wait()
        found = elements(x)
        self.assertTrue((found == found[0]).all())
        self.assertTrue(0 <= found[0] <= self.size - 1)
        groups.leave()

    def test_group_averages_come_behind_the_streams_of_their_arrays(self):
        # At odd iterations, the groups of a static schedule are the hosts.
        groups = dunlin.GroupAverage(COUNT, "static", group_size=2, gpu=0)
        odd = itertools.count(1, 2)
        self.expect_order_of_streams(lambda x: groups.start_average(x, iteration=next(odd)))
        x = Interfaced(np.zeros(COUNT, "float32"), stream=gpu.Stream())
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "after that of a later one"):
            groups.start_average(x, iteration=0)
        groups.leave()

    # partial_all_reduce

    def test_partial_all_reduces(self):
        everybody = list(range(self.size))
        for op in ("avg", "sum", "max"):
            for dtype in ("float32", "float64", "int32"):
                if op == "avg" and dtype == "int32":
                    continue
                for count in (0, 1, 7, COUNT, 300_001):
                    values = (100 * self.values(count=count)).astype(dtype)
                    expected = dunlin.partial_all_reduce(values, everybody, op, "host")
                    x = Interfaced(values)
                    with self.within_the_gpu():
                        result = dunlin.partial_all_reduce(x, everybody, op, "gpu")
                    self.assertIsInstance(result, dunlin.GpuArray)
                    self.expect(result, expected)
                    self.expect(x, values)
                    self.assertIs(dunlin.partial_all_reduce(x, everybody, op, "gpu", out=x), x)
                    self.expect(x, expected)

    def test_many_partial_all_reduces_at_a_time(self):
        everybody = list(range(self.size))
        arrays = [Interfaced(self.values(count=100 * number, seed=number)) for number in range(20)]
        requests = [dunlin.start_partial_all_reduce(each, everybody, name="gpu") for each in arrays]
        for number in reversed(range(20)):
            expected = dunlin.partial_all_reduce(self.values(count=100 * number, seed=number), everybody, name="host")
            self.expect(requests[number].wait(), expected)

    def test_partial_all_reduces_come_behind_the_streams_of_their_arrays(self):
        everybody = list(range(self.size))
        self.expect_order_of_streams(lambda x: dunlin.start_partial_all_reduce(x, everybody, name="gpu", out=x))
        # Also where a later one would be ready before.
        late = Interfaced(np.full(COUNT, self.rank, "float32"), stream=gpu.Stream())
        open_gate = late.stream.gate()
        requests = [dunlin.start_partial_all_reduce(each, everybody, name="gpu", out=each)
                    for each in (late, Interfaced(np.full(COUNT, self.rank + 1, "float32")))]
        self.assertFalse(requests[1].test())
        open_gate()
        self.expect(requests[1].wait(), np.full(COUNT, (self.size + 1) / 2, "float32"))
        self.expect(requests[0].wait(), np.full(COUNT, (self.size - 1) / 2, "float32"))

    def test_a_result_does_not_wait_for_a_later_input(self):
        everybody = list(range(self.size))
        x = Interfaced(np.full(COUNT, self.rank, "float32"))
        late = Interfaced(np.full(COUNT, self.rank, "float32"), stream=gpu.Stream())
        open_gate = late.stream.gate()
        requests = [dunlin.start_partial_all_reduce(each, everybody, name="gpu", out=each) for each in (x, late)]
        self.expect(requests[0].wait(), np.full(COUNT, (self.size - 1) / 2, "float32"))
        self.assertFalse(requests[1].test())
        open_gate()
        self.expect(requests[1].wait(), np.full(COUNT, (self.size - 1) / 2, "float32"))

    def test_all_calls_of_a_name_are_in_one_kind_of_memory(self):
        everybody = list(range(self.size))
        dunlin.partial_all_reduce(Interfaced(np.ones(10)), everybody, name="of the GPU")
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "in host memory: the first call .* memory of GPU 0"):
            dunlin.partial_all_reduce(np.ones(10), everybody, name="of the GPU")
        dunlin.partial_all_reduce(np.ones(10), everybody, name="of the host")
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "memory of GPU 0: the first call .* in host memory"):
            dunlin.partial_all_reduce(Interfaced(np.ones(10)), everybody, name="of the host")
        self.expect(dunlin.partial_all_reduce(Interfaced(np.ones(10)), everybody, name="of the GPU"), np.ones(10))

    def test_members_of_a_partial_all_reduce_in_other_memory_are_found(self):
        if self.size == 1:
            self.skipTest("one rank has no other member")
        x = np.ones(10) if self.rank == 0 else Interfaced(np.ones(10))
        with self.assertRaises(dunlin.InvalidArgumentError):
            dunlin.partial_all_reduce(x, range(self.size), name="of both")

    def test_wrong_partial_all_reduces(self):
        x = Interfaced(np.ones(10))
        with self.assertRaisesRegex(dunlin.Error, f"member {self.size} in a job of {self.size}"):
            dunlin.partial_all_reduce(x, [self.rank, self.size], name="gpu")
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "numbers grow"):
            dunlin.partial_all_reduce(x, [self.rank], name="alone", number=5)
            dunlin.partial_all_reduce(x, [self.rank], name="alone", number=5)
        self.expect(dunlin.partial_all_reduce(x, [self.rank], name="alone"), np.ones(10))
        if self.size > 1:
            with self.assertRaises(dunlin.InvalidArgumentError):
                dunlin.partial_all_reduce(Interfaced(np.ones(10 + self.rank)), range(self.size), name="gpu")
        # Others continue.
        self.expect(dunlin.partial_all_reduce(x, range(self.size), name="gpu"), np.ones(10))

    def test_a_failed_call_does_not_hold_up_those_behind_it(self):
        """The input of the next one waits for a stream that stands still."""
        if self.size == 1:
            self.skipTest("one rank has no other member")
        everybody = list(range(self.size))
        differs = Interfaced(np.ones(100 + self.rank, "float32"))
        late = Interfaced(np.full(COUNT, self.rank, "float32"), stream=gpu.Stream())
        open_gate = late.stream.gate()
        requests = [dunlin.start_partial_all_reduce(each, everybody, name="some fail", out=each) for each in (differs, late)]
        with self.assertRaises(dunlin.InvalidArgumentError):
            requests[0].wait()
        self.assertFalse(requests[1].test())
        dunlin.barrier()
        open_gate()
        self.expect(requests[1].wait(), np.full(COUNT, (self.size - 1) / 2, "float32"))

    def test_buffers_are_used_again(self):
        everybody = list(range(self.size))
        x = Interfaced(np.ones(5_000_017, "float32"))
        dunlin.partial_all_reduce(x, everybody, name="again", out=x)
        before = gpu.counts()[0]
        for _ in range(3):
            dunlin.partial_all_reduce(x, everybody, name="again", out=x)
        gc.collect()
        self.assertEqual(gpu.counts()[0], before)


if __name__ == "__main__":
    unittest.main()
