"""dunlin.torch on tensors of a GPU, on every rank of a job: dunlin-run -n N python3 torch_gpu_test.py [absent]

PyTorch has no CUDA here. The tensors are a subclass whose elements are in the memory of the stand-in for CUDA's driver
(tests/fake_cuda), and which fails when it is copied to host memory. With `absent`, the members have no transport for that
memory, and copies are expected.
"""

import sys
import unittest
from unittest import mock

import gpu_arrays
import numpy as np
import torch

import dunlin
import dunlin.torch as bf

IS_ABSENT = "absent" in sys.argv[1:]
if IS_ABSENT:
    sys.argv.remove("absent")
devices = []  # that were made current


class Current:
    """In place of torch.cuda.device."""

    def __init__(self, device):
        devices.append(device)

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


class OnGpu(torch.Tensor):
    """A tensor in the memory of the stand-in. It has what dunlin.torch uses, and nothing else."""

    @staticmethod
    def of(values, device=0, stream=None):
        values = np.ascontiguousarray(values)
        self = torch.Tensor._make_subclass(OnGpu, torch.from_numpy(values.copy()).fill_(0))
        self.memory = gpu_arrays.Exporting(values, device=device, stream=stream)
        self.host_copies = 0
        self.is_dense = True
        return self

    is_cuda = property(lambda self: True)
    device = property(lambda self: torch.device("cuda", self.memory.device))

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.empty_like:
            return OnGpu.of(np.zeros(tuple(args[0].shape), args[0].memory.dtype), args[0].memory.device)
        return super().__torch_function__(function, types, args, kwargs)

    def detach(self):
        return self

    def clone(self):
        return OnGpu.of(self.memory.read(), self.memory.device)

    def is_contiguous(self):
        return self.is_dense

    def contiguous(self):
        return self if self.is_dense else self.clone()

    def cpu(self):
        self.host_copies += 1
        return torch.from_numpy(self.memory.read())

    def to(self, device):
        return self if device == self.device else OnGpu.of(self.memory.read(), device.index)

    def copy_(self, other):
        self.host_copies += not isinstance(other, OnGpu)
        self.memory.write(other.memory.read() if isinstance(other, OnGpu) else other.numpy())

    def __dlpack__(self, stream=None):
        return self.memory.__dlpack__(stream)

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()


def empty(*size, device=None, pin_memory=False, **options):
    """In place of torch.empty()."""
    if device is None or device.type == "cpu":
        return torch.zeros(*size, **options)
    values = torch.zeros(*size, **options).numpy()
    return OnGpu.of(values, device.index)


class GpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        bf.init()
        for name, replacement in {"torch.cuda.device": Current, "torch.empty": empty}.items():
            patch = mock.patch(name, replacement)
            patch.start()
            cls.addClassCleanup(patch.stop)

    def values(self, count=5000):
        return [np.arange(count, dtype="float32") + 8 * rank for rank in range(bf.size())]

    def expect(self, tensor, expected):
        self.assertIsInstance(tensor, OnGpu)
        np.testing.assert_array_equal(tensor.memory.read(), expected)

    def expect_copies(self, *tensors):
        for tensor in tensors:
            (self.assertGreater if IS_ABSENT else self.assertEqual)(tensor.host_copies, 0)

    def test_allreduce(self):
        values = self.values()
        x = OnGpu.of(values[bf.rank()])
        average = bf.allreduce(x)
        self.expect(average, np.mean(values, 0))
        total = bf.allreduce(x, average=False)
        self.expect(total, np.sum(values, 0))
        self.expect(x, values[bf.rank()])
        self.assertIs(bf.allreduce_(x), x)
        self.expect(x, np.mean(values, 0))
        self.expect_copies(x, average, total)
        if not IS_ABSENT:
            self.assertIn(torch.device("cuda:0"), devices)

    def test_errors_of_one_rank_do_not_change_the_memory(self):
        if IS_ABSENT:
            self.skipTest("the members have agreed on host memory")
        values = self.values()
        x = OnGpu.of(values[bf.rank()])
        bf.allreduce(x)
        failure = dunlin.UnavailableError("for a reason of this rank")
        with mock.patch.object(OnGpu, "__dlpack__", side_effect=failure), self.assertRaises(dunlin.UnavailableError):
            bf.allreduce(x)
        self.expect(bf.allreduce(x), np.mean(values, 0))
        self.expect_copies(x)

    def test_broadcast(self):
        for root in range(bf.size()):
            values = self.values(300 + root)
            x = OnGpu.of(values[bf.rank()])
            copy = bf.broadcast(x, root)
            self.expect(copy, values[root])
            self.expect(x, values[bf.rank()])
            self.assertIs(bf.broadcast_(x, root), x)
            self.expect(x, values[root])
            self.expect_copies(x)

    def test_handles(self):
        values = self.values()
        tensors = [OnGpu.of(values[bf.rank()] + number) for number in range(10)]
        handles = [bf.allreduce_nonblocking_(tensor) for tensor in tensors]
        for number, (tensor, handle) in enumerate(zip(tensors, handles)):
            self.assertIs(bf.synchronize(handle), tensor)
            self.expect(tensor, np.mean(values, 0) + number)
        self.expect_copies(*tensors)

    def test_the_current_stream_is_waited_for(self):
        if IS_ABSENT:
            self.skipTest("copies to host memory wait for the stream themselves")
        values = self.values()
        x = OnGpu.of(np.zeros(5000, "float32"), stream=gpu_arrays.Stream())
        open_gate = x.memory.stream.gate()
        x.memory.write(values[bf.rank()], x.memory.stream)
        handle = bf.allreduce_nonblocking(x)
        self.assertFalse(bf.poll(handle))
        open_gate()
        self.expect(bf.synchronize(handle), np.mean(values, 0))

    def test_tensors_that_are_not_contiguous_or_on_another_gpu(self):
        values = self.values()
        x = OnGpu.of(values[bf.rank()])
        x.is_dense = False
        y = OnGpu.of(values[bf.rank()], device=1)
        bf.allreduce(OnGpu.of(values[0]))  # device 0 is the first
        for tensor in (x, y):
            self.expect(bf.allreduce(tensor), np.mean(values, 0))
            bf.broadcast_(tensor, 0)
            self.expect(tensor, values[0])

    def test_neighbor_allreduce(self):
        """The result has the bits that it has in host memory."""
        bf.set_topology(bf.topology_util.RingGraph(bf.size()))
        values = self.values()[bf.rank()]
        expected = bf.neighbor_allreduce(torch.from_numpy(values)).numpy()
        x = OnGpu.of(values)
        average = bf.neighbor_allreduce(x, name="new")
        self.expect(average, expected)
        self.expect(x, values)
        self.assertIs(bf.neighbor_allreduce_(x, name="in place"), x)
        self.expect(x, expected)
        tensors = [OnGpu.of(values + number) for number in range(10)]
        handles = [bf.neighbor_allreduce_nonblocking_(tensor, name=str(number)) for number, tensor in enumerate(tensors)]
        for number, (tensor, handle) in enumerate(zip(tensors, handles)):
            self.assertIs(bf.synchronize(handle), tensor)
            self.expect(tensor, bf.neighbor_allreduce(torch.from_numpy(values + number)).numpy())
        self.expect_copies(x, average, *tensors)

    def test_parameters(self):
        values = self.values(100)
        state = {"weight": OnGpu.of(values[bf.rank()]), "bias": OnGpu.of(values[bf.rank()][:7])}
        bf.broadcast_parameters(state, root_rank=0)
        self.expect(state["weight"], values[0])
        bf.allreduce_parameters(state)
        self.expect(state["bias"], values[0][:7])
        self.expect_copies(*state.values())


if __name__ == "__main__":
    unittest.main()
