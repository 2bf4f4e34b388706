"""The Python package's collectives, on every rank of a job, against NumPy.

    dunlin-run -n N python3 collectives_test.py
"""

import ctypes
import gc
import unittest

import dunlin
import numpy as np

OPS = ("sum", "prod", "min", "max", "avg")
TYPES = ("int8", "uint8", "int32", "int64", "float16", "float32", "float64")
SHAPES = ((), (0,), (1,), (7,), (3, 0, 2), (5, 4), (2000,))


class Exported:
    """An array that has only DLPack, like a tensor of another library."""

    def __init__(self, array, bfloat16=False, device=(1, 0)):
        self.array = array
        self.bfloat16 = bfloat16
        self.device = device

    def __dlpack__(self, stream=None):
        capsule = self.array.__dlpack__()
        if self.bfloat16:
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
            # The data, the device and the number of dimensions precede the type's code.
            ctypes.c_uint8.from_address(get(capsule, b"dltensor") + 20).value = 4
        return capsule

    def __dlpack_device__(self):
        return self.device


def to_bfloat16(values):
    """The upper halves of float32, exact for small integers."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bfloat16(halves):
    return (halves.astype(np.uint32) << 16).view(np.float32)


def value(shape, dtype, rank, seed=0):
    """The input of any rank, computed on any rank: small integers, so that float16 and products are exact."""
    return np.random.default_rng([seed, rank]).integers(1, 4, shape).astype(dtype)


def combine(op, inputs):
    stacked = np.stack(inputs)
    if op == "avg":
        total = stacked.sum(0, dtype=np.float64 if stacked.dtype.kind == "f" else np.int64)
        if stacked.dtype.kind != "f":
            return (total // len(inputs)).astype(stacked.dtype)
        return (total / len(inputs)).astype(stacked.dtype)
    function = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[op]
    kwargs = {"dtype": stacked.dtype} if op in ("sum", "prod") else {}
    return function(stacked, axis=0, **kwargs)


class CollectivesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        dunlin.init()
        cls.rank, cls.size = dunlin.rank(), dunlin.size()

    def inputs(self, shape, dtype, seed=0):
        return [value(shape, dtype, rank, seed) for rank in range(self.size)]

    def expect(self, found, expected, what):
        self.assertEqual(found.dtype, expected.dtype, what)
        self.assertEqual(found.shape, expected.shape, what)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=2e-3 if expected.dtype == np.float16 else 1e-6,
                                       err_msg=str(what))
        else:
            np.testing.assert_array_equal(found, expected, err_msg=str(what))

    def test_all_reduce_of_all_types_operations_and_shapes(self):
        for dtype in TYPES:
            for op in OPS:
                for shape in SHAPES:
                    what = (dtype, op, shape)
                    inputs = self.inputs(shape, dtype)
                    mine = inputs[self.rank].copy()
                    expected = combine(op, inputs)
                    self.expect(dunlin.all_reduce(mine, op), expected, what)
                    np.testing.assert_array_equal(mine, inputs[self.rank])
                    self.assertIs(dunlin.all_reduce(mine, op, out=mine), mine)
                    self.expect(mine, expected, what)

    def test_random_sizes(self):
        sizes = np.random.default_rng(7).integers(0, 70000, 12)
        for seed, size in enumerate((*sizes, 0, 1)):
            inputs = self.inputs(size, "float32", seed)
            expected = combine("sum", inputs)
            own = dunlin.zeros(size)
            own[:] = inputs[self.rank]
            self.expect(dunlin.all_reduce(inputs[self.rank]), expected, size)
            self.expect(dunlin.all_reduce(own, out=own), expected, size)
            dunlin.free(own)
            self.expect(own, expected, "after free")

    def test_reduce_and_broadcast_at_every_root(self):
        for root in range(self.size):
            for shape in SHAPES:
                inputs = self.inputs(shape, "float64", root)
                mine = inputs[self.rank]
                found = dunlin.reduce(mine, root, "max")
                if self.rank == root:
                    self.expect(found, combine("max", inputs), (root, shape))
                else:
                    self.assertIsNone(found)
                self.expect(dunlin.broadcast(mine, root), inputs[root], (root, shape))
                self.assertIs(dunlin.broadcast(mine, root, out=mine), mine)
                self.expect(mine, inputs[root], (root, shape))

    def test_all_gather(self):
        for dtype in TYPES:
            for shape in SHAPES:
                inputs = self.inputs(shape, dtype)
                expected = np.stack(inputs)
                self.expect(dunlin.all_gather(inputs[self.rank]), expected, (dtype, shape))
                whole = np.zeros_like(expected)
                whole[self.rank] = inputs[self.rank]
                # Indexing an array without dimensions gives a scalar; a slice shares the memory.
                mine = whole.reshape(self.size, -1)[self.rank]
                self.assertIs(dunlin.all_gather(mine, out=whole), whole)
                self.expect(whole, expected, (dtype, shape))

    def test_reduce_scatter_and_all_to_all(self):
        for dtype in TYPES:
            for shape in ((self.size,), (3 * self.size, 2), (0,), (500 * self.size,)):
                inputs = self.inputs(shape, dtype)
                mine = inputs[self.rank]
                parts = [np.split(each, self.size) for each in inputs]
                expected = combine("min", inputs)
                expected = np.split(expected, self.size)[self.rank]
                self.expect(dunlin.reduce_scatter(mine, "min"), expected, (dtype, shape))
                exchanged = np.concatenate([parts[rank][self.rank] for rank in range(self.size)])
                self.expect(dunlin.all_to_all(mine), exchanged, (dtype, shape))
                inplace = mine.copy()
                part = np.split(inplace, self.size)[self.rank]
                dunlin.reduce_scatter(inplace, "min", out=part)
                self.expect(part, expected, (dtype, shape))

    def test_arrays_of_other_libraries(self):
        inputs = self.inputs(33, "float32")
        expected = combine("sum", inputs)
        out = np.zeros(33, np.float32)
        self.expect(dunlin.all_reduce(Exported(inputs[self.rank])), expected, "dlpack")
        exported = Exported(out)
        self.assertIs(dunlin.all_reduce(inputs[self.rank], out=exported), exported)
        self.expect(out, expected, "dlpack out")
        raw = bytearray(inputs[self.rank].astype(np.uint8).tobytes())
        self.assertIs(dunlin.all_reduce(raw, out=raw), raw)
        np.testing.assert_array_equal(np.frombuffer(raw, np.uint8), expected.astype(np.uint8))
        view = memoryview(inputs[self.rank])
        self.expect(dunlin.all_reduce(view), expected, "memoryview")

    def test_bfloat16(self):
        for op in OPS:
            inputs = self.inputs(100, "float32")
            mine = to_bfloat16(inputs[self.rank])
            tensor = Exported(mine, bfloat16=True)
            dunlin.all_reduce(tensor, op, out=tensor)
            np.testing.assert_allclose(from_bfloat16(mine), combine(op, inputs), rtol=1e-2, err_msg=op)

    def test_operations_that_are_started(self):
        requests, expected = [], []
        for seed in range(40):
            inputs = self.inputs(1 + 997 * seed, "int64", seed)
            expected.append(combine("sum", inputs))
            requests.append(dunlin.start_all_reduce(inputs[self.rank]))
        self.expect(dunlin.all_gather(np.array(self.rank)), np.arange(self.size), "in between")
        for seed in reversed(range(40)):
            self.expect(requests[seed].wait(), expected[seed], seed)
            self.assertTrue(requests[seed].test())
            self.expect(requests[seed].wait(0), expected[seed], seed)

    def test_requests_keep_their_arrays(self):
        for seed in range(20):
            inputs = self.inputs(50000, "float64", seed)
            request = dunlin.start_all_reduce(inputs[self.rank].copy())
            gc.collect()
            junk = [np.full(50000, -1.0) for _ in range(3)]
            self.expect(request.wait(), combine("sum", inputs), seed)
            # No call waits for this operation, but its memory has to last.
            dunlin.start_all_reduce(inputs[self.rank].copy(), out=np.empty(50000))
            del junk
        dunlin.barrier()

    def test_more_operations_than_fit(self):
        arrays = [np.full(3, self.rank + i) for i in range(600)]
        requests = [dunlin.start_all_reduce(array, out=array) for array in arrays]
        for request in requests:
            request.wait()
        for i, array in enumerate(arrays):
            np.testing.assert_array_equal(array, sum(range(self.size)) + self.size * i)

    def test_split(self):
        part = dunlin.split(self.rank % 2, key=-self.rank)
        members = sorted(range(self.rank % 2, self.size, 2), reverse=True)
        self.assertEqual((part.rank, part.size), (members.index(self.rank), len(members)))
        np.testing.assert_array_equal(part.all_gather(np.array(self.rank)), members)
        # Operations of both communicators at the same time.
        first = part.start_all_reduce(np.array(self.rank))
        second = dunlin.start_all_reduce(np.array(self.rank))
        self.assertEqual(second.wait(), sum(range(self.size)))
        self.assertEqual(first.wait(), sum(members))
        memory = part.empty((2, 3), np.int32)
        memory[:] = 1
        self.assertEqual(part.all_reduce(memory, out=memory)[1, 2], len(members))
        part.release()
        self.assertEqual(memory[0, 0], len(members))
        with self.assertRaisesRegex(dunlin.ClosedError, "released"):
            part.barrier()
        with self.assertRaises(dunlin.InvalidArgumentError):
            dunlin.world().release()

    def test_own_memory(self):
        arrays = [dunlin.empty((n, 3), dtype) for n, dtype in ((0, "int8"), (5, "float64"), (100, "float16"))]
        for array in arrays:
            self.assertFalse(array.any())
            array[:] = 1
            self.expect(dunlin.all_reduce(array, out=array), np.full_like(array, self.size), array.dtype)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "did not allocate"):
            dunlin.free(np.zeros(5))
        for array in arrays:
            dunlin.free(array)
        self.assertEqual(arrays[1].sum(), 15 * self.size)

    def test_own_memory_that_one_rank_does_not_get_is_an_error_on_all(self):
        if self.size == 1:
            self.skipTest("there is no other rank")
        for wrong, expected in ((2**62, "allocating memory failed at rank 0"), (11, "arguments differ")):
            with self.assertRaises(dunlin.Error) as raised:
                dunlin.empty(wrong if self.rank == 0 else 10, "int8")
            self.assertNotIsInstance(raised.exception, dunlin.DeadlineExceededError)
            if self.rank > 0:
                self.assertIn(expected, str(raised.exception))
        array = dunlin.empty(10)
        array[:] = 1
        self.expect(dunlin.all_reduce(array, out=array), np.full_like(array, self.size), array.dtype)
        dunlin.free(array)

    def test_reduce_of_own_memory(self):
        part = dunlin.split(0)
        for count in (7, 300_003):  # one part, and several
            inputs = [value(count, "float32", rank, count) for rank in range(self.size)]
            own, result = part.empty(count), part.empty(count)
            for root in range(self.size):
                # Only the root knows its output, and only each rank where its input is.
                for out in (None, result, np.zeros(count, np.float32)):
                    x = own if (self.rank + root) % 2 else np.zeros(count, np.float32)
                    for given in (own, x):
                        given[:] = inputs[self.rank]
                        total = part.reduce(given, root, out=out)
                        if self.rank == root:
                            self.expect(total, combine("sum", inputs), (count, root))
                        else:
                            self.assertIsNone(total)
                        np.testing.assert_array_equal(given, inputs[self.rank])
                own[:] = inputs[self.rank]
                part.reduce(own, root, out=own)
                if self.rank == root:
                    self.expect(own, combine("sum", inputs), (count, root))
        part.release()

    def test_own_memory_of_some_ranks_is_refused(self):
        if self.size == 1:
            self.skipTest("all ranks pass the same memory")
        part = dunlin.split(0)
        own = part.empty(100)
        x = own if self.rank == 0 else np.zeros(100, np.float32)
        with self.assertRaisesRegex(dunlin.InvalidArgumentError, "different calls"):
            part.all_reduce(x, out=x)
        dunlin.barrier()

    def test_mistakes_are_named(self):
        x = np.ones((4, 4), np.float32)
        line = np.ones(self.size)
        for call, error, text in (
                (lambda: dunlin.all_reduce([1, 2]), TypeError, "a list is no array"),
                (lambda: dunlin.all_reduce(x.T[::2]), ValueError, "not contiguous"),
                (lambda: dunlin.all_reduce(x, "mean"), ValueError, "sum.*prod.*min.*max.*avg"),
                (lambda: dunlin.all_reduce(x.astype(complex)), ValueError, "complex128.*float64"),
                (lambda: dunlin.all_reduce(x.astype(">f4")), ValueError, ">f4"),
                (lambda: dunlin.all_reduce(x > 0), ValueError, "bool"),
                (lambda: dunlin.all_reduce(x, out=x[:2].copy()), ValueError, "8 elements.*16"),
                (lambda: dunlin.all_reduce(x, out=x.astype(np.float64)), ValueError, "float64.*float32"),
                (lambda: dunlin.all_reduce(x.ravel()[:12], out=x.ravel()[4:]), ValueError, "overlaps"),
                (lambda: dunlin.all_reduce(b"12", out=b"12"), ValueError, "read-only"),
                (lambda: dunlin.all_reduce(Exported(x, device=(10, 0))), ValueError, "device"),
                (lambda: dunlin.neighbor_gather(Exported(x, device=(2, 0))), ValueError, "host memory"),
                (lambda: dunlin.all_reduce(Exported(x, bfloat16=True)), ValueError, "32 bits.*DLPack"),
                (lambda: dunlin.broadcast(x, root=self.size), IndexError, "root"),
                (lambda: dunlin.reduce_scatter(np.array(1)), ValueError, "first axis"),
                (lambda: dunlin.all_to_all(line, out=line), ValueError, "in place"),
                (lambda: dunlin.start_all_reduce(x).wait(-1), ValueError, "seconds")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()
        dunlin.barrier()


if __name__ == "__main__":
    unittest.main(verbosity=1)
