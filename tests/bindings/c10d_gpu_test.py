"""The PyTorch backend on CUDA tensors, on every rank of a job: dunlin-run -n N python3 c10d_gpu_test.py [absent]

PyTorch has no CUDA here. The tensors are those of cuda_tensors.cc, over memory of the stand-in for CUDA's driver
(tests/fake_cuda). They have no operations, so that a copy to host memory is an error. Python's side of the current stream is
replaced. With `absent`, the members have no transport for that memory, and copies to host memory are expected.
"""

import gc
import sys
import time
import unittest
import weakref

import torch

import cuda_tensors
import gpu_arrays
import numpy as np
import torch.distributed as dist

import dunlin.c10d

IS_ABSENT = "absent" in sys.argv[1:]
if IS_ABSENT:
    sys.argv.remove("absent")
current = {"stream": None}  # PyTorch's current stream


def raw_stream(device):
    return current["stream"].handle if current["stream"] else 0


torch._C._cuda_getCurrentRawStream = raw_stream
TYPES = {"int8": torch.int8, "uint8": torch.uint8, "int32": torch.int32, "int64": torch.int64, "float16": torch.float16,
         "float32": torch.float32, "float64": torch.float64}


class OnGpu:
    """An array, and a CUDA tensor over its memory."""

    def __init__(self, values, device=0):
        self.array = gpu_arrays.Device(values, device)
        self.tensor = cuda_tensors.tensor(self.array.address, list(self.array.shape),
                                          torch.empty(0, dtype=TYPES[self.array.dtype.name]), device, self.array.memory)

    def read(self):
        return self.array.read()


def value(rank, count, dtype="float32"):
    return np.random.default_rng([count, rank]).integers(1, 5, count).astype(dtype)


class GpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        dist.init_process_group("dunlin")
        group = dist.distributed_c10d._get_default_group()
        # Bypasses the dispatcher, as staged_test.py.
        cls.group = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
        cls.rank, cls.size = dist.get_rank(), dist.get_world_size()

    def setUp(self):
        if IS_ABSENT and self._testMethodName != "test_without_a_transport_for_the_memory":
            self.skipTest("needs a transport")
        current["stream"] = None

    def gate(self, stream):
        """Closes a gate in the stream. Returns what opens it, which a failure of the test does, too."""
        closed = [stream.gate()]

        def open_gate():
            while closed:
                closed.pop()()
        self.addCleanup(open_gate)
        return open_gate

    def values(self, count, dtype="float32"):
        return [value(rank, count, dtype) for rank in range(self.size)]

    def expect(self, x, expected):
        np.testing.assert_array_equal(x.read(), expected)

    def options(self, kind, **entries):
        options = kind()
        for name, entry in entries.items():
            setattr(options, name, entry)
        return options

    def test_all_reduce(self):
        before = gpu_arrays.counts()[1]
        arrays = []
        for dtype in TYPES:
            for count in (0, 1, 5000):
                x = OnGpu(value(self.rank, count, dtype))
                arrays.append((x, count, dtype))
                work = self.group.allreduce([x.tensor])
                self.assertTrue(work.wait())
                self.assertTrue(work.is_completed())
        # Each array came there by a copy, and none has left its GPU since.
        self.assertEqual(gpu_arrays.counts()[1], before + sum(count > 0 for _, count, _ in arrays))
        for x, count, dtype in arrays:
            self.expect(x, sum(self.values(count, dtype)).astype(dtype))

    def test_reductions(self):
        values = self.values(5000)
        for op, combined in ((dist.ReduceOp.MAX, np.max(values, 0)), (dist.ReduceOp.MIN, np.min(values, 0)),
                             (dist.ReduceOp.PRODUCT, np.prod(values, 0)),
                             (dist.ReduceOp.AVG, (sum(values) / np.float32(self.size)))):
            x = OnGpu(values[self.rank])
            self.group.allreduce([x.tensor], self.options(dist.AllreduceOptions, reduceOp=op)).wait()
            np.testing.assert_allclose(x.read(), combined, rtol=1e-6)

    def test_rooted(self):
        values = self.values(5000)
        for root in range(self.size):
            x = OnGpu(values[self.rank])
            self.group.broadcast([x.tensor], self.options(dist.BroadcastOptions, rootRank=root)).wait()
            self.expect(x, values[root])
            x = OnGpu(values[self.rank])
            self.group.reduce([x.tensor], self.options(dist.ReduceOptions, rootRank=root)).wait()
            self.expect(x, sum(values) if self.rank == root else values[self.rank])

    def test_lists(self):
        values = self.values(1000)
        x = OnGpu(values[self.rank])
        gathered = [OnGpu(np.zeros(1000, "float32")) for _ in range(self.size)]
        work = self.group.allgather([[each.tensor for each in gathered]], [x.tensor])
        work.wait()
        for each, expected in zip(gathered, values):
            self.expect(each, expected)
        parts = [self.values(1000 * (rank + 1)) for rank in range(self.size)]  # [part][rank]
        inputs = [OnGpu(parts[part][self.rank][:1000]) for part in range(self.size)]
        output = OnGpu(np.zeros(1000, "float32"))
        self.group.reduce_scatter([output.tensor], [[each.tensor for each in inputs]]).wait()
        self.expect(output, sum(each[:1000] for each in parts[self.rank]))
        several = [OnGpu(values[self.rank]), OnGpu(2 * values[self.rank])]
        self.group.allreduce_coalesced([each.tensor for each in several]).wait()
        self.expect(several[0], sum(values))
        self.expect(several[1], 2 * sum(values))

    def test_whole_tensors(self):
        values = self.values(600 * self.size)
        x = OnGpu(values[self.rank])
        whole = OnGpu(np.zeros(600 * self.size ** 2, "float32"))
        self.group._allgather_base(whole.tensor, x.tensor).wait()
        self.expect(whole, np.concatenate(values))
        part = OnGpu(np.zeros(600, "float32"))
        self.group._reduce_scatter_base(part.tensor, x.tensor).wait()
        self.expect(part, np.split(sum(values), self.size)[self.rank])
        exchanged = OnGpu(np.zeros(600 * self.size, "float32"))
        self.group.alltoall_base(exchanged.tensor, x.tensor, [], []).wait()
        self.expect(exchanged, np.concatenate([np.split(each, self.size)[self.rank] for each in values]))

    def test_calls_come_behind_the_current_stream(self):
        values = self.values(5000)
        stream = current["stream"] = gpu_arrays.Stream()
        x = OnGpu(np.zeros(5000, "float32"))
        open_gate = self.gate(stream)
        x.array.write(values[self.rank], stream)
        work = self.group.allreduce([x.tensor])  # returns, although the stream stands still
        self.assertFalse(work.is_completed())
        current["stream"] = None
        other = OnGpu(values[self.rank])
        second = self.group.allreduce([other.tensor])
        open_gate()
        second.wait()
        self.expect(other, sum(values))
        work.wait()
        self.expect(x, sum(values))

    def test_futures_and_many_calls(self):
        arrays = [OnGpu(value(self.rank, 100 + number)) for number in range(30)]
        futures = [self.group.allreduce([each.tensor]).get_future() for each in arrays]
        for number, future in enumerate(futures):
            result, = future.wait()
            self.assertEqual(result.data_ptr(), arrays[number].array.address)
            self.expect(arrays[number], sum(self.values(100 + number)))

    def test_tensors_live_as_long_as_calls_use_them(self):
        x = OnGpu(np.ones(1000, "float32"))
        memory, tensor = weakref.ref(x.array.memory), x.tensor
        del x
        stream = current["stream"] = gpu_arrays.Stream()
        open_gate = self.gate(stream)
        work = self.group.allreduce([tensor])
        del tensor
        gc.collect()
        self.assertIsNotNone(memory())
        open_gate()
        work.wait()
        self.assertIsNotNone(memory())  # the work has the result
        del work
        limit = time.monotonic() + 60
        while memory() is not None and time.monotonic() < limit:
            gc.collect()
        self.assertIsNone(memory())

    def test_groups_come_and_go(self):
        members = min(self.size, 2)
        for _ in range(2):
            part = dist.new_group(list(range(members)))
            if self.rank < members:
                backend = part._get_backend(torch.device("cpu")) if hasattr(part, "_get_backend") else part
                x = OnGpu(np.full(3000, self.rank + 1, "float32"))
                backend.allreduce([x.tensor]).wait()
                self.expect(x, np.full(3000, sum(range(1, members + 1)), "float32"))
                del backend
            dist.destroy_process_group(part)
            del part

    def test_without_a_transport_for_the_memory(self):
        if not IS_ABSENT:
            self.skipTest("there is one")
        # The tensors have no operations: what is wanted is a copy.
        x = OnGpu(np.ones(10, "float32"))
        with self.assertRaisesRegex(RuntimeError, "copy|_to_copy|CUDA"):
            self.group.allreduce([x.tensor])
        y = torch.ones(10)
        self.group.allreduce([y]).wait()
        self.assertEqual(y[0], self.size)


if __name__ == "__main__":
    unittest.main()
