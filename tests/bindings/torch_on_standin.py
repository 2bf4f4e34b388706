"""Runs tests for PyTorch with CUDA on a PyTorch without it: its GPU is the stand-in for CUDA's driver (torch_device.cc).

    LD_LIBRARY_PATH=BUILD/tests/fake_cuda dunlin-run -n N python3 torch_on_standin.py torch_cuda_test.py [TEST...]

It has one device and one stream, the default one. PyTorch's work is complete when a call returns. Others may have work in
progress in the stream; PyTorch's next copy comes behind it, as on a GPU.
"""

import ctypes
import os
import runpy
import sys

import torch_device  # before PyTorch asks for CUDA

import torch

CUDA = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code != 0:
        raise OSError(f"CUDA returned {code}")


class Stream:
    """In place of torch.cuda.Stream and ExternalStream. A new one is the default stream."""

    def __init__(self, cuda_stream=0, device=None):
        self.cuda_stream = cuda_stream if isinstance(cuda_stream, int) else 0

    def __eq__(self, other):
        return self.cuda_stream == other.cuda_stream

    def wait_event(self, event):
        check(CUDA.cuStreamWaitEvent(ctypes.c_void_p(self.cuda_stream), event.handle, 0))

    def synchronize(self):
        torch_device.finish()


class Event:
    """In place of torch.cuda.Event."""

    def __init__(self, **options):
        self.handle = ctypes.c_void_p()
        check(CUDA.cuEventCreate(ctypes.byref(self.handle), 2))

    def record(self, stream):
        check(CUDA.cuEventRecord(self.handle, ctypes.c_void_p(stream.cuda_stream)))

    def __del__(self):
        CUDA.cuEventDestroy_v2(self.handle)


class Current:
    """In place of torch.cuda.device and torch.cuda.stream."""

    def __init__(self, what):
        if not isinstance(what, Stream) and torch.device(what).index not in (None, 0):
            raise ValueError(f"there is no {what}")

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


torch.cuda.is_available = torch.cuda.is_initialized = lambda: True
torch.cuda._lazy_init = lambda: None
torch.cuda.device_count = lambda: 1
torch.cuda.current_device = lambda: 0
torch.cuda.synchronize = lambda device=None: torch_device.finish()
torch.cuda.current_stream = lambda device=None: Stream()
torch.cuda.ExternalStream = torch.cuda.Stream = Stream
torch.cuda.Event = Event
torch.cuda.device = torch.cuda.stream = Current
torch._C._cuda_getCurrentRawStream = lambda device: 0
# Makes the device current in this thread.
torch.empty(1, device="cuda").fill_(0)

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
