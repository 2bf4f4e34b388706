"""The Python package's collectives on memory of a GPU, on every rank of a job: dunlin-run -n N gpu_array_test.py

The GPU is the stand-in for CUDA's driver (tests/fake_cuda), which LD_LIBRARY_PATH has as libcuda.so.1.
"""

import gc
import time
import types
import unittest

import dunlin
import gpu_arrays as gpu
import numpy as np
from gpu_arrays import Exporting, Interfaced

PACKAGES = (Interfaced, Exporting)
TYPES = ("int8", "uint8", "int32", "int64", "float16", "float32", "float64")
SIZES = (0, 1, 7, 1000, 70001)
# More than a slot of staging memory, and more than all of them.
LARGE = (5_000_003, 18_000_001)
# Communicators of failed calls. Released by the garbage collector, they would change what tests count some time later.
unreleased = []


def value(rank, count, dtype, seed=0):
    """Small integers, so that every sum is exact."""
    return np.random.default_rng([seed, rank]).integers(1, 5, count).astype(dtype)


class GpuArrayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        dunlin.init()
        cls.rank, cls.size = dunlin.rank(), dunlin.size()
        gpu.use(0)

    def values(self, count, dtype, seed=0):
        return [value(rank, count, dtype, seed) for rank in range(self.size)]

    def expect(self, array, expected, what):
        """A result that the package has made, or an array that it has filled."""
        if isinstance(array, dunlin.GpuArray):
            self.assertEqual(array.shape, expected.shape, what)
            self.assertEqual(array.dtype, expected.dtype.name, what)
        np.testing.assert_array_equal(gpu.elements(array), expected, err_msg=str(what))

    def test_all_reduce_of_all_types_sizes_and_packages(self):
        for package in PACKAGES:
            for dtype in TYPES:
                for size in SIZES:
                    what = (package.__name__, dtype, size)
                    values = self.values(size, dtype)
                    x = package(values[self.rank])
                    total = sum(values).astype(dtype)
                    self.expect(dunlin.all_reduce(x), total, what)
                    self.expect(x, values[self.rank], what)
                    out = package(np.zeros(size, dtype))
                    self.assertIs(dunlin.all_reduce(x, "max", out=out), out)
                    self.expect(out, np.max(values, 0), what)
                    self.assertIs(dunlin.all_reduce(x, out=x), x)
                    self.expect(x, total, what)

    def test_results_have_the_bits_of_host_memory(self):
        values = np.random.default_rng(self.rank).normal(size=100_003).astype("float32")
        x = Interfaced(values)
        for op in ("sum", "prod", "avg"):
            self.expect(dunlin.all_reduce(x, op), dunlin.all_reduce(values, op), op)

    def test_bfloat16(self):
        halves = (np.full(5000, 1.0 + self.rank, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        x = Exporting(halves, dtype="bfloat16")
        result = dunlin.all_reduce(x)
        self.assertEqual(result.dtype, "bfloat16")
        address, _, _, code, bits, shape, _ = gpu.tensor_of(result)
        self.assertEqual((code, bits, shape), (4, 16, (5000,)))
        found = gpu.read(address, (5000,), np.uint16).astype(np.uint32) << 16
        np.testing.assert_array_equal(found.view(np.float32), sum(range(1, self.size + 1)))
        self.assertFalse(hasattr(result, "__cuda_array_interface__"))

    def test_other_collectives(self):
        for package in PACKAGES:
            for count in (1, 1003, 40_000):
                values = self.values(count * self.size, "float32", count)
                mine = values[self.rank]
                x = package(mine)
                for root in range(self.size):
                    total = dunlin.reduce(x, root)
                    if self.rank == root:
                        self.expect(total, sum(values), root)
                    else:
                        self.assertIsNone(total)
                    self.expect(dunlin.broadcast(x, root), values[root], root)
                    filled = package(np.zeros_like(mine))
                    self.assertIs(dunlin.broadcast(x, root, out=filled), filled)
                    self.expect(filled, values[root], root)
                    same = package(mine)
                    dunlin.broadcast(same, root, out=same)
                    self.expect(same, values[root], root)
                self.expect(x, mine, "untouched")
                self.expect(dunlin.all_gather(x), np.stack(values), count)
                parts = [np.split(each, self.size) for each in values]
                own = np.split(sum(values), self.size)[self.rank]
                self.expect(dunlin.reduce_scatter(x), own, count)
                exchanged = np.concatenate([parts[rank][self.rank] for rank in range(self.size)])
                self.expect(dunlin.all_to_all(x), exchanged, count)
                # In place.
                whole = package(np.zeros(mine.size * self.size, "float32"))
                part = whole.part(self.rank * mine.size, (self.rank + 1) * mine.size)
                part.write(mine)
                self.assertIs(dunlin.all_gather(part, out=whole), whole)
                self.expect(whole, np.concatenate(values), count)
                part = x.part(self.rank * count, (self.rank + 1) * count)
                dunlin.reduce_scatter(x, out=part)
                self.expect(part, own, count)

    def test_memory_that_takes_several_slots(self):
        for count in LARGE:
            values = self.values(count, "float32", count)
            x = Interfaced(values[self.rank])
            dunlin.all_reduce(x, out=x)
            self.expect(x, sum(values), count)
        count = 2_000_003 * self.size
        values = self.values(count, "float32", 1)
        x = Exporting(values[self.rank])
        self.expect(dunlin.all_gather(x), np.stack(values), count)
        self.expect(dunlin.reduce_scatter(x, "max"), np.split(np.max(values, 0), self.size)[self.rank], count)
        parts = [np.split(each, self.size) for each in values]
        self.expect(dunlin.all_to_all(x), np.concatenate([each[self.rank] for each in parts]), count)
        self.expect(dunlin.broadcast(x, self.size - 1), values[-1], count)

    def test_no_data_go_through_host_memory(self):
        x = Interfaced(value(self.rank, 300_000 * self.size, "float32"))
        before = gpu.counts()[1]
        for call in (dunlin.all_reduce, dunlin.reduce, dunlin.broadcast, dunlin.all_gather, dunlin.reduce_scatter,
                     dunlin.all_to_all):
            call(x)
        self.assertEqual(gpu.counts()[1], before)

    def test_calls_are_ordered_behind_the_streams_of_their_arrays(self):
        for package in PACKAGES:
            stream = gpu.Stream()
            x = package(np.zeros(30_000, "float32"), stream=stream)
            open_gate = stream.gate()
            x.write(np.full(30_000, self.rank + 1, "float32"), stream)  # happens once the gate is open
            request = dunlin.start_all_reduce(x)
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                self.assertFalse(request.test())
            open_gate()
            self.expect(request.wait(), np.full(30_000, sum(range(1, self.size + 1)), "float32"), package)
            # The same for the array of the result: its former contents are still read.
            out = package(np.full(30_000, 7, "float32"), stream=gpu.Stream())
            open_gate = out.stream.gate()
            request = dunlin.start_all_reduce(x, out=out)
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                self.assertFalse(request.test())
            self.expect(out, np.full(30_000, 7, "float32"), package)
            open_gate()
            self.expect(request.wait(), np.full(30_000, sum(range(1, self.size + 1)), "float32"), package)

    def test_a_stream_without_a_number_is_not_waited_for(self):
        stream = gpu.Stream()
        open_gate = stream.gate()
        x = Interfaced(np.ones(100, "float32"))
        self.assertIsNone(x.__cuda_array_interface__["stream"])
        self.expect(dunlin.all_reduce(x), np.full(100, self.size, "float32"), "beside a stream that stands still")
        open_gate()

    def test_default_streams(self):
        class Second(Interfaced):
            changes = {"version": 2, "stream": Interfaced.MISSING}

        class Legacy(Interfaced):
            changes = {"stream": 1}

        for package in (Second, Legacy):
            x = package(np.zeros(30_000, "float32"))
            default = gpu.Stream.__new__(gpu.Stream)
            default.handle = None
            open_gate = default.gate()
            x.write(np.ones(30_000, "float32"), default)
            request = dunlin.start_all_reduce(x)
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                self.assertFalse(request.test())
            open_gate()
            self.expect(request.wait(), np.full(30_000, self.size, "float32"), package)

    def test_many_calls_at_a_time(self):
        arrays, requests = [], []
        for number in range(40):
            arrays.append(PACKAGES[number % 2](value(self.rank, 100 * number, "int64", number)))
            requests.append(dunlin.start_all_reduce(arrays[-1]) if number % 3 else
                            dunlin.start_all_gather(arrays[-1]))
        for number in reversed(range(40)):
            values = self.values(100 * number, "int64", number)
            self.expect(requests[number].wait(), sum(values) if number % 3 else np.stack(values), number)

    def test_arrays_live_as_long_as_calls_use_them(self):
        stream = gpu.Stream()
        open_gate = stream.gate()
        request = dunlin.start_all_reduce(Exporting(np.ones(5003, "float32"), stream=stream))
        gc.collect()
        self.assertEqual(gpu.exported(), 1)
        open_gate()
        result = request.wait()
        self.expect(result, np.full(5003, self.size, "float32"), "a dropped array")
        self.assertEqual(gpu.exported(), 0)
        # Nobody waits for this one. The background thread advances it, and frees its result.
        del request, result
        self.assertEqual(gpu.allocations_of(20_012), 0)
        dunlin.start_all_reduce(Exporting(np.ones(5003, "float32")))
        until = time.monotonic() + 20
        while time.monotonic() < until and (gpu.exported() > 0 or gpu.allocations_of(20_012) > 0):
            time.sleep(0.01)
            dunlin.rank()
        self.assertEqual(gpu.exported(), 0)
        self.assertEqual(gpu.allocations_of(20_012), 0)

    def test_results_are_freed(self):
        dunlin.all_reduce(Interfaced(np.ones(1009, "float32")))
        gc.collect()
        self.assertEqual(gpu.allocations_of(4036), 0)
        _, _, streams, events, *_ = gpu.counts()
        for _ in range(20):
            result = dunlin.all_reduce(Exporting(np.ones(1009, "float32")))
        self.assertEqual(gpu.allocations_of(4036), 1)
        capsule = result.__dlpack__()
        del result
        self.assertEqual(gpu.allocations_of(4036), 1)  # the capsule keeps it
        del capsule
        self.assertEqual(gpu.allocations_of(4036), 0)
        self.assertEqual(gpu.counts()[3], events)
        self.assertLessEqual(gpu.counts()[2], streams + 1)

    def test_results_can_be_read_by_other_packages(self):
        result = dunlin.all_reduce(Interfaced(np.ones((3, 4), "float32")))
        interface = result.__cuda_array_interface__
        self.assertEqual((interface["shape"], interface["typestr"], interface["version"], interface["stream"]),
                         ((3, 4), "<f4", 3, None))
        self.assertEqual(gpu.tensor_of(result), (interface["data"][0], gpu.GPU, 0, 2, 32, (3, 4), False))
        self.assertEqual(result.__dlpack_device__(), (gpu.GPU, 0))
        self.assertEqual((result.device, result.size, result.nbytes), (0, 12, 48))
        self.assertIn("(3, 4)", repr(result))
        # It is an input as well.
        self.expect(dunlin.all_reduce(result), np.full((3, 4), self.size ** 2, "float32"), "again")
        with self.assertRaises(BufferError):
            result.__dlpack__(copy=True)
        for device in ((1, 0), (gpu.GPU, 1)):
            with self.assertRaisesRegex(BufferError, "in the memory of GPU 0"):
                result.__dlpack__(dl_device=device)
        result.__dlpack__(dl_device=(gpu.GPU, 0), copy=False)

    def test_memory_of_the_communicator_is_used_in_place(self):
        x = dunlin.empty(100_000, device=0)
        address = x.__cuda_array_interface__["data"][0]

        class Own(Interfaced):
            def __init__(self, values):
                self.__dict__.update(shape=values.shape, dtype=values.dtype, nbytes=values.nbytes, stream=None, device=0,
                                     address=address)
                self.write(values)

        values = self.values(100_000, "float32")
        own = Own(values[self.rank])
        dunlin.barrier()
        for array in (x, own):
            own.write(values[self.rank])
            dunlin.barrier()
            before = gpu.counts()[4]
            self.assertIs(dunlin.all_reduce(array, out=array), array)
            self.assertEqual(gpu.counts()[4], before)
            self.expect(array, sum(values), "in place")
            dunlin.barrier()
        before = gpu.counts()[4]
        dunlin.all_reduce(Interfaced(values[self.rank]))
        self.assertEqual(gpu.counts()[4], before + 3)  # the test's own, in and out
        for root in range(self.size):
            dunlin.broadcast(Interfaced(values[self.rank]), root, out=x)
            self.expect(x, values[root], root)
        dunlin.free(x)
        self.expect(x, values[-1], "after free")

    def test_reduce_of_memory_of_the_communicator(self):
        part = dunlin.split(0)
        for count in (1000, 5_000_003):  # one slot, and several
            own = part.empty(count, device=0)
            address = own.__cuda_array_interface__["data"][0]
            values = self.values(count, "float32", count)
            written = Interfaced(values[self.rank], memory=types.SimpleNamespace(address=address))
            other = Interfaced(values[self.rank])
            for root in {0, self.size - 1}:
                for x in (own, written if (self.rank + root) % 2 else other):
                    written.write(values[self.rank])
                    total = part.reduce(x, root)
                    if self.rank == root:
                        self.expect(total, sum(values), (count, root))
                    else:
                        self.assertIsNone(total)
                part.reduce(own, root, out=own)
                if self.rank == root:
                    self.expect(own, sum(values), (count, root))
        part.release()

    def test_memory_of_the_communicator_at_some_members_is_refused(self):
        if self.size == 1:
            self.skipTest("all members pass the same memory")
        for count in (100_000, 5_000_003):
            part = dunlin.split(0)
            own = part.empty(count, device=0)
            x = own if self.rank == 0 else Interfaced(np.zeros(count, "float32"))
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "different calls.*allocation"):
                part.all_reduce(x, out=x)
            unreleased.append(part)
        dunlin.barrier()

    def test_calls_of_different_lengths_are_refused(self):
        if self.size == 1:
            self.skipTest("there are no other members")
        part = dunlin.split(0)
        x = Interfaced(np.zeros(1000 if self.rank == 0 else 1_000_000, "float32"))
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "different calls.*all-reduce of 1000000 float32 on GPUs"):
            part.all_reduce(x)
        unreleased.append(part)
        dunlin.barrier()

    def test_memory_of_the_communicator_at_some_members_of_a_short_call(self):
        part = dunlin.split(0)
        values = self.values(1000, "float32", 7)
        own = part.empty(1000, device=0)  # collective
        address = own.__cuda_array_interface__["data"][0]
        is_own = self.rank == 0
        x = Interfaced(values[self.rank], memory=types.SimpleNamespace(address=address) if is_own else None)
        part.all_reduce(x, out=x)
        self.expect(x, sum(values), "memory of the communicator at rank 0")
        part.release()

    def test_released_communicators_pin_no_memory(self):
        dunlin.all_reduce(Interfaced(np.ones(100, "float32")))
        before = gpu.counts()[5]
        part = dunlin.split(0)
        part.all_reduce(Interfaced(np.ones(100, "float32")))
        self.assertEqual(gpu.counts()[5], before + 1)
        part.release()
        self.assertEqual(gpu.counts()[5], before)

    def test_memory_is_allocated_behind_calls_in_progress(self):
        x = Interfaced(np.ones(5_000_003, "float32"))
        request = dunlin.start_all_reduce(x)
        own = dunlin.empty(10, device=0)
        self.expect(request.wait(), np.full(5_000_003, self.size, "float32"), "before the allocation")
        dunlin.free(own)

    def test_streams_are_bounded(self):
        x = Exporting(np.ones(100, "float32"), stream=gpu.Stream())
        dunlin.all_reduce(x)
        gc.collect()
        before = gpu.counts()[2]
        open_gate = x.stream.gate()
        requests = [dunlin.start_all_reduce(x) for _ in range(200)]
        self.assertLessEqual(gpu.counts()[2], before + 16)
        open_gate()
        for request in requests:
            self.expect(request.wait(), np.full(100, self.size, "float32"), "behind a busy stream")

    def test_parts(self):
        part = dunlin.split(self.rank % 2)
        x = Interfaced(np.full(3000, self.rank, "float32"))
        ranks = range(self.rank % 2, self.size, 2)
        for _ in range(2):
            self.expect(part.all_reduce(x), np.full(3000, sum(ranks), "float32"), "a part")
        request = part.start_all_reduce(x)
        part.release()
        self.expect(request.wait(), np.full(3000, sum(ranks), "float32"), "over before the release")

    def test_members_may_use_different_devices(self):
        part = dunlin.split(0)
        device = self.rank % 2
        x = Interfaced(np.full(3000, self.rank, "float32"), device=device)
        result = part.all_reduce(x)
        self.assertEqual(result.device, device)
        address = result.__cuda_array_interface__["data"][0]
        np.testing.assert_array_equal(gpu.read(address, (3000,), "float32", device), sum(range(self.size)))
        # A member has one device in a communicator.
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, r"memory of GPU \d, but .* use GPU \d"):
            part.all_reduce(Interfaced(np.ones(3), device=1 - device))
        part.release()

    def test_bad_arrays(self):
        def interfaced(**changes):
            package = type("Changed", (Interfaced,), {"changes": changes})
            return package(np.ones((4, 6), "float32"))

        cases = [
            (interfaced(mask=np.ones(3)), "mask"),
            (interfaced(strides=(4, 16)), "not contiguous in C order"),
            (interfaced(strides=(4,)), "2 axes, but 1 strides"),
            (interfaced(typestr="<c8"), "elements of type <c8"),
            (interfaced(typestr=">f4"), "elements of type >f4"),
            (interfaced(typestr="|b1"), "elements of type"),
            (interfaced(typestr=""), "elements of type"),
            (interfaced(stream=0), "stream 0 is ambiguous"),
            (interfaced(stream="x"), "'stream' can't be 'x'"),
            (interfaced(version=1), "version 1"),
            (interfaced(version=Interfaced.MISSING), "has no 'version'"),
            (interfaced(shape=3), "'shape' can't be 3"),
            (interfaced(shape=(-1,)), "negative extent"),
            (interfaced(data=(0, False)), "it was freed, or it is in host memory"),
            (interfaced(data=(np.ones(24).ctypes.data, False)), "it was freed, or it is in host memory"),
            (interfaced(shape=(1 << 20,)), "its end is not in the memory of GPU 0"),
        ]
        turned = Exporting(np.ones((4, 6), "float32"))
        turned.strides = (1, 4)
        cases.append((turned, "not contiguous in C order"))
        managed = Exporting(np.ones(100, "float32"))
        managed.kind = gpu.MANAGED
        cases.append((managed, "managed memory"))
        other = Exporting(np.ones(100, "float32"))
        other.kind = 10
        cases.append((other, "DLPack device type 10"))
        lying = Exporting(np.ones(100, "float32"), device=0)
        lying.device = 1
        cases.append((lying, "in the memory of GPU 1, but it is in that of GPU 0"))
        for array, why in cases:
            for call in (dunlin.all_reduce, dunlin.start_broadcast):
                with self.assertRaises(dunlin.InvalidArgumentError, msg=why) as raised:
                    call(array)
                self.assertIn(why, str(raised.exception))
        for package in PACKAGES:
            freed = package(np.ones(100, "float32"))
            freed.memory.free()
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "no memory of a GPU: it was freed"):
                dunlin.all_reduce(freed)
        self.assertEqual(gpu.exported(), 0)
        with self.assertRaisesRegex(dunlin.Error, "the stream 0x1e240 of the array: cuEventRecord"):
            dunlin.all_reduce(interfaced(stream=123456))
        gpu.CUDA.fake_cuda_manage(1)
        try:
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "managed memory, which moves"):
                dunlin.all_reduce(interfaced())
        finally:
            gpu.CUDA.fake_cuda_manage(0)

    def test_bad_outputs(self):
        x = Interfaced(np.ones(24, "float32"))
        host = np.ones(24, "float32")
        cases = [
            (x, host, "in the memory of the host, but the input is in that of GPU 0"),
            (host, x, "in the memory of GPU 0, but the input is in that of the host"),
            (x, Interfaced(np.ones(24, "float32"), device=1), "of GPU 1, but the input is in that of GPU 0"),
            (x, Interfaced(np.ones(24, "float64")), "elements of type float64"),
            (x, Interfaced(np.ones(23, "float32")), "23 elements"),
            (x, type("ReadOnly", (Interfaced,), {"changes": {"data": (x.address, True)}})(host), "read-only"),
        ]
        for given, out, why in cases:
            with self.assertRaises(dunlin.InvalidArgumentError, msg=why) as raised:
                dunlin.all_reduce(given, out=out)
            self.assertIn(why, str(raised.exception))
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "overlaps"):
            dunlin.all_reduce(x.part(0, 10), out=x.part(1, 11))
        y = Interfaced(np.ones(self.size))
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "in place"):
            dunlin.all_to_all(y, out=y)

    def test_calls_that_need_host_memory_say_so(self):
        x = Interfaced(np.ones(24, "float32"))
        y = Exporting(np.ones(24, "float32"))
        for array in (x, y, dunlin.all_reduce(x)):
            with self.assertRaisesRegex(dunlin.InvalidArgumentError, "this call works in host memory; copy"):
                dunlin.neighbor_gather(array)
        self.assertEqual(y.calls, [])  # nothing was exported

    def test_the_interface_of_dlpack_is_followed(self):
        x = Exporting(np.ones(24, "float32"))
        dunlin.all_reduce(x)
        stream, = x.calls
        self.assertIs(type(stream), int)
        self.assertGreater(stream, 2)  # a stream of the package's own


if __name__ == "__main__":
    unittest.main()
