"""Arrays in the memory of a GPU for tests in Python, made with ctypes as a package of another party would.

The driver is the stand-in of tests/fake_cuda, which LD_LIBRARY_PATH has as libcuda.so.1.
"""

import ctypes

import numpy as np

CUDA = ctypes.CDLL("libcuda.so.1")
CPU, GPU, MANAGED = 1, 2, 13  # DLPack's device types
_NOT_READY = 600
_NAME = b"dltensor"
_contexts = {}


def check(code):
    if code != 0:
        raise OSError(f"CUDA returned {code}")


def use(device):
    """Makes the device current for this thread."""
    if device not in _contexts:
        check(CUDA.cuInit(0))
        context = ctypes.c_void_p()
        check(CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        _contexts[device] = context
    popped = ctypes.c_void_p()
    CUDA.cuCtxPopCurrent_v2(ctypes.byref(popped))
    check(CUDA.cuCtxPushCurrent_v2(_contexts[device]))


def counts():
    """(allocations, copies from and to pageable host memory so far, streams, events, all copies so far, pinned pieces of
    host memory)"""
    numbers = (ctypes.c_uint64 * 6)()
    CUDA.fake_cuda_counts(numbers)
    return tuple(numbers)


def allocations_of(size):
    """The number of allocations of this size in bytes. The memory of a communicator is freed some time after its release,
    so that only the sizes of other memory can be counted on."""
    CUDA.fake_cuda_allocations_of.restype = ctypes.c_uint64
    return CUDA.fake_cuda_allocations_of(ctypes.c_uint64(size))


class Stream:
    """A stream of device 0."""

    def __init__(self):
        use(0)
        handle = ctypes.c_void_p()
        check(CUDA.cuStreamCreate(ctypes.byref(handle), 1))
        self.handle = handle.value

    def gate(self):
        """Work that is added from now on waits until the function that this returns is called."""
        CUDA.fake_cuda_gate.restype = ctypes.c_void_p
        gate = CUDA.fake_cuda_gate(ctypes.c_void_p(self.handle))
        return lambda: CUDA.fake_cuda_open(ctypes.c_void_p(gate))

    def finish(self):
        while (code := CUDA.cuStreamQuery(ctypes.c_void_p(self.handle))) == _NOT_READY:
            pass
        check(code)


def _wait_for(stream, other):
    """Makes work of `stream`, as a number, wait for the present work of `other`."""
    event = ctypes.c_void_p()
    check(CUDA.cuEventCreate(ctypes.byref(event), 2))
    check(CUDA.cuEventRecord(event, ctypes.c_void_p(other.handle)))
    check(CUDA.cuStreamWaitEvent(ctypes.c_void_p(stream), event, 0))
    check(CUDA.cuEventDestroy_v2(event))


class Memory:
    """Memory of a device, freed with the object."""

    def __init__(self, nbytes, device=0):
        use(device)
        self.device = device
        address = ctypes.c_uint64()
        check(CUDA.cuMemAlloc_v2(ctypes.byref(address), max(nbytes, 1)))
        self.address = address.value
        use(0)

    def free(self):
        address, self.address = self.address, 0
        if address:
            use(self.device)
            check(CUDA.cuMemFree_v2(ctypes.c_uint64(address)))
            use(0)

    def __del__(self):
        self.free()


class Device:
    """An array of a package that has neither protocol; the classes below add one."""

    def __init__(self, values, device=0, stream=None, memory=None, offset=0, dtype=None):
        values = np.ascontiguousarray(values)
        self.shape, self.dtype, self.nbytes = values.shape, values.dtype, values.nbytes
        self.type = dtype or values.dtype.name
        self.device = device
        self.stream = stream
        self.memory = memory or Memory(offset + values.nbytes, device)
        self.address = self.memory.address + offset
        self.calls = []
        self.write(values)

    def write(self, values, stream=None):
        """Starts a copy to the array on its stream, and waits for the end of it on the default stream."""
        self.source = np.ascontiguousarray(values, self.dtype)
        if self.nbytes == 0:
            return
        use(self.device)
        where = ctypes.c_void_p(stream.handle if stream else None)
        check(CUDA.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.address), self.source.ctypes.data_as(ctypes.c_void_p),
                                        ctypes.c_size_t(self.nbytes), where))
        if stream is None:
            _finish_default()
        use(0)

    def read(self):
        return read(self.address, self.shape, self.dtype, self.device)

    def part(self, begin, end):
        """Elements of the flat array, in the same memory."""
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view.address += begin * self.dtype.itemsize
        view.shape = (end - begin,)
        view.nbytes = (end - begin) * self.dtype.itemsize
        return view


def read(address, shape, dtype, device=0):
    """The elements at an address, once all work of the default stream is done."""
    values = np.empty(shape, dtype)
    if values.nbytes:
        use(device)
        check(CUDA.cuMemcpyDtoHAsync_v2(values.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address),
                                        ctypes.c_size_t(values.nbytes), None))
        _finish_default()
        use(0)
    return values


def elements(array):
    """The elements of an array in the memory of the GPU: one of the classes here, or a dunlin.GpuArray."""
    if isinstance(array, Device):
        return array.read()
    return read(array.__cuda_array_interface__["data"][0], array.shape, array.dtype)


def _finish_default():
    while (code := CUDA.cuStreamQuery(None)) == _NOT_READY:
        pass
    check(code)


class Interfaced(Device):
    """An array as Numba and CuPy have them: with __cuda_array_interface__."""

    MISSING = object()
    changes = {}  # of the entries

    @property
    def __cuda_array_interface__(self):
        entries = {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
                   "strides": None, "stream": self.stream and self.stream.handle, **self.changes}
        return {name: entry for name, entry in entries.items() if entry is not self.MISSING}


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
                ("dimensions", ctypes.c_int32), ("type", _Type), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]
_alive = {}  # by the address of the structure: what an exported tensor needs


@_DELETER
def _release(managed):
    del _alive[ctypes.addressof(managed.contents)]


def exported():
    """The number of tensors that were exported by DLPack, and not released."""
    return len(_alive)


class Exporting(Device):
    """An array as PyTorch and CuPy have them: with DLPack."""

    kind = GPU
    strides = None

    def __dlpack_device__(self):
        return (self.kind, self.device)

    def __dlpack__(self, stream=None):
        self.calls.append(stream)
        if self.stream is not None:
            _wait_for(stream, self.stream)  # as the protocol demands
        name = self.type
        code = 4 if name == "bfloat16" else {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        axes = len(self.shape)
        shape = (ctypes.c_int64 * axes)(*self.shape)
        strides = (ctypes.c_int64 * axes)(*self.strides) if self.strides else None
        # The data begin behind an offset, as the protocol allows.
        tensor = _Tensor(self.address - 16, self.kind, self.device, axes, _Type(code, 8 * self.dtype.itemsize, 1),
                         shape, strides, 16)
        managed = _Managed(tensor, None, _release)
        _alive[ctypes.addressof(managed)] = (managed, shape, strides, self.memory)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(managed), _NAME, None)


def tensor_of(array):
    """What the DLPack capsule of an array says: (address, device type, device, type code, bits, shape, strides)."""
    capsule = array.__dlpack__(stream=1)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    managed = _Managed.from_address(get(capsule, _NAME))
    tensor = managed.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.dimensions))
    return (tensor.data + tensor.byte_offset if tensor.data else 0, tensor.device_type, tensor.device,
            tensor.type.code, tensor.type.bits, shape, bool(tensor.strides))
