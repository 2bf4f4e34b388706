#!/usr/bin/env python3
"""What a host's GPU, driver and libraries permit, as far as it decides how Dunlin works there.

    questions.py [--nccl-plugin FILE] [NAME...]

Prints a line of JSON for each question: {"question": ..., "answer": ...}. What can't be found out says why. Each
question is asked in processes of its own, since a wrong answer may be a process that hangs or dies.
"""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60
SIZE = 64 << 20
QUESTIONS = {}


class NoAnswer(Exception):
    pass


def question(text):
    def keep(function):
        QUESTIONS[function.__name__] = (text, function)
        return function
    return keep


# The driver, called by ctypes.

class Cuda:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)

    def code(self, name, *arguments):
        try:
            return getattr(self.library, name)(*arguments)
        except AttributeError as error:
            raise NoAnswer(f"this driver has no {name}") from error

    def name_of(self, code):
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return text.value.decode() if text.value else f"code {code}"

    def call(self, name, *arguments):
        code = self.code(name, *arguments)
        if code != 0:
            raise NoAnswer(f"{name}: {self.name_of(code)}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream


def children(role, count, limit=LIMIT_S, environment=None):
    """Runs processes of this program in a role; returns the last line of each."""
    started = [subprocess.Popen([sys.executable, __file__, "--role", f"{role}:{rank}:{count}"], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(environment or {})})
               for rank in range(count)]
    end = time.monotonic() + limit
    lines = []
    try:
        for child in started:
            out, errors = child.communicate(timeout=max(end - time.monotonic(), 0.1))
            if child.returncode != 0:
                raise NoAnswer((errors.strip().splitlines() or [f"exit code {child.returncode}"])[-1])
            if not out.strip():
                raise NoAnswer("no answer of the process that asks the driver")
            lines.append(out.strip().splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"not done after {limit} s") from error
    finally:
        for child in started:
            child.kill()
    return lines


# Roles of child processes.

def role_wait_for_gpu(rank, count):
    """Operations on the GPU, each awaited, in turns with the other processes; prints the microseconds of one."""
    cuda = Cuda()
    address, other, stream = cuda.allocate(4096), cuda.allocate(4096), cuda.stream()
    host = ctypes.c_void_p()
    cuda.call("cuMemAllocHost_v2", ctypes.byref(host), ctypes.c_size_t(4096))
    size = ctypes.c_size_t(64)
    operation = {"kernel": ("cuMemsetD8Async", address, 0, size, stream),
                 "copy": ("cuMemcpyDtoDAsync_v2", other, address, size, stream),
                 "copy to the host": ("cuMemcpyDtoHAsync_v2", host, address, size, stream),
                 "copy from the host": ("cuMemcpyHtoDAsync_v2", address, host, size, stream)}[os.environ["OPERATION"]]
    with open(os.environ["TURNS_FILE"], "r+b") as file:
        turns = mmap.mmap(file.fileno(), 4096)
    rounds = 500
    for turn in range(-100, rounds):
        if turn == 0:
            began = time.perf_counter()
        mine = (turn + 100) * count + rank
        while struct.unpack_from("q", turns, 0)[0] != mine:
            pass
        cuda.call(*operation)
        cuda.call("cuStreamSynchronize", stream)
        struct.pack_into("q", turns, 0, mine + 1)
    print(1e6 * (time.perf_counter() - began) / rounds / count)


def role_context(_rank, _count):
    cuda = Cuda()
    cuda.allocate(4096)
    print("ok")


def role_nccl(rank, count):
    import torch
    import torch.distributed as distributed
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{os.environ['NCCL_TEST_PORT']}", rank=rank,
                                   world_size=count)
    x = torch.full((SIZE // 4,), rank + 1.0, device="cuda")
    distributed.all_reduce(x)
    if not bool((x == sum(range(1, count + 1))).all()):
        raise NoAnswer("a wrong sum")
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(3):
        distributed.all_reduce(x)
    torch.cuda.synchronize()
    print(f"{1e3 * (time.perf_counter() - began) / 3:.1f} ms")
    distributed.destroy_process_group()


def role_segment(_rank, _count):
    import torch
    x = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    cuda = Cuda()
    ipc = (ctypes.c_char * 64)()
    shared = cuda.code("cuIpcGetMemHandle", ipc, ctypes.c_uint64(x.data_ptr()))
    handle = ctypes.c_uint64()
    retained = cuda.code("cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(x.data_ptr()))
    text = f"cuIpcGetMemHandle: {cuda.name_of(shared)}; cuMemRetainAllocationHandle: {cuda.name_of(retained)}"
    if retained == 0:
        descriptor = ctypes.c_int(-1)
        exported = cuda.code("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, 1, ctypes.c_ulonglong(0))
        text += f"; cuMemExportToShareableHandle, as a file descriptor: {cuda.name_of(exported)}"
    print(text)


def role_memfd(_rank, _count):
    cuda = Cuda()
    descriptor = os.memfd_create("questions")
    os.ftruncate(descriptor, SIZE)
    memory = mmap.mmap(descriptor, SIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    began = time.perf_counter()
    code = cuda.code("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(SIZE), 0)
    took = time.perf_counter() - began
    if code != 0:
        print(f"no: {cuda.name_of(code)}")
        return
    device, stream = cuda.allocate(SIZE), cuda.stream()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        cuda.call("cuMemcpyHtoDAsync_v2", device, ctypes.c_void_p(address), ctypes.c_size_t(SIZE), stream)
        cuda.call("cuStreamSynchronize", stream)
        best = min(best, time.perf_counter() - began)
    print(f"yes: 64 MiB in {1e3 * took:.1f} ms; from there to the GPU with {SIZE / best / 1e9:.1f} GB/s")


# The questions.

def wait_for_gpu(operation, count, **environment):
    """Returns the microseconds of an operation and the wait for it, in processes that take turns."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(4096)
        return max(map(float, children("wait_for_gpu", count, environment={
            "TURNS_FILE": file.name, "OPERATION": operation, **environment})))


@question("What does a switch between two processes' contexts cost?")
def switch():
    texts = []
    for operation in ("kernel", "copy", "copy to the host", "copy from the host"):
        alone, in_turns = wait_for_gpu(operation, 1), wait_for_gpu(operation, 2)
        texts.append(f"{in_turns - alone:.0f} us: a {operation} of 64 bytes and its wait take {alone:.1f} us in one process, "
                     f"{in_turns:.1f} us in two that take turns")
    return "; ".join(texts)


@question("May MPS be started?")
def mps():
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return "nvidia-cuda-mps-control is not installed"
    with tempfile.TemporaryDirectory() as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **variables}
        try:
            started = subprocess.run([control, "-d"], env=environment, text=True, capture_output=True, timeout=20, check=False)
            if started.returncode != 0:
                return f"no: {(started.stdout + started.stderr).strip()}"
            children("context", 1, 20, variables)
            took = wait_for_gpu("kernel", 2, **variables)
            return f"yes; with it a kernel of 64 bytes and its wait take {took:.1f} us in two processes that take turns"
        except NoAnswer as error:
            return f"the daemon starts, but its clients fail: {error}"
        finally:
            subprocess.run([control], input="quit\n", env=environment, text=True, capture_output=True, timeout=20, check=False)


@question("Can a memfd be registered with cuMemHostRegister?")
def memfd():
    return children("memfd", 1)[0]


def torch_or_no_answer():
    done = subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], text=True,
                          capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise NoAnswer("needs PyTorch with CUDA")


@question("Is the memory of PyTorch's allocator exportable?")
def segments():
    torch_or_no_answer()
    plain = children("segment", 1)[0]
    expandable = children("segment", 1, environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})[0]
    return f"by default: {plain}. Expandable segments: {expandable}"


def nccl_ranks(count, environment):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return children("nccl", count, environment={"NCCL_TEST_PORT": str(port), "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN",
                                                **environment})


@question("Do two NCCL ranks on one GPU work, each with a NCCL_HOSTID of its own?")
def nccl():
    torch_or_no_answer()
    texts = []
    for name, variables in NCCL_WAYS.items():
        try:
            texts.append(f"{name}: yes, all-reduce of 64 MiB in {nccl_ranks(2, variables)[0]}")
        except NoAnswer as error:
            texts.append(f"{name}: no: {error}")
    return "; ".join(texts)


NCCL_WAYS = {"sockets": {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}}


def ask(name):
    text, function = QUESTIONS[name]
    try:
        answer = function()
    except (NoAnswer, OSError, subprocess.TimeoutExpired) as error:
        answer = f"not found out: {error}"
    print(json.dumps({"question": text, "answer": answer}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(QUESTIONS)}; default: all")
    parser.add_argument("--nccl-plugin", type=pathlib.Path, metavar="FILE", help="Dunlin's network plugin for NCCL")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        role, rank, count = arguments.role.split(":")
        if role == "nccl":
            os.environ["NCCL_HOSTID"] = f"rank-{rank}"
        try:
            globals()[f"role_{role}"](int(rank), int(count))
        except (NoAnswer, OSError) as error:
            sys.exit(str(error))
        return
    # So that what was started for a question is ended, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if unknown := set(arguments.names) - set(QUESTIONS):
        parser.error(f"no question {', '.join(sorted(unknown))}; there are {', '.join(QUESTIONS)}")
    if arguments.nccl_plugin:
        for transport in ("tcp", "shm"):
            NCCL_WAYS[f"Dunlin's plugin over {transport}"] = {"NCCL_NET_PLUGIN": str(arguments.nccl_plugin.resolve()),
                                                              "DUNLIN_TRANSPORTS": transport}
        # NCCL gives the plugin GPU memory where it takes the GPU and the device for near one another.
        NCCL_WAYS["Dunlin's plugin over shm, GPU memory"] = {**NCCL_WAYS["Dunlin's plugin over shm"],
                                                             "NCCL_NET_GDR_LEVEL": "SYS"}
    for name in arguments.names or QUESTIONS:
        ask(name)


if __name__ == "__main__":
    main()
