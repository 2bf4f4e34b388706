"""Agents of NIXL with the backend DUNLIN, their memory, and agents in other processes."""

import ctypes
import multiprocessing
import os
import signal
import time
import traceback

LIMIT_S = 60 * int(os.environ.get("CONFORMANCE_TIMEOUT_FACTOR", "1"))


def make_agent(name, threads=True):
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(name, nixl_agent_config(backends=[], enable_prog_thread=threads))
    agent.create_backend("DUNLIN", {})
    return agent


def pattern(size, seed):
    """Bytes that depend on a seed and on their place in periods of a prime number of bytes."""
    import numpy

    period = (numpy.arange(999983, dtype=numpy.uint32) * 40503 + seed * 97 >> 5).astype(numpy.uint8)
    return numpy.resize(period, size)


class GpuMemory:
    """Memory of GPU 0, by the driver's interface."""

    def __init__(self, size):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.context, self.stream, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxPushCurrent_v2", self.context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address = address.value

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        check(code == 0, f"{name} failed with {code}")

    def finish(self):
        while (code := self.driver.cuStreamQuery(self.stream)) == 600:  # CUDA_ERROR_NOT_READY
            time.sleep(0.0001)
        check(code == 0, f"a copy failed with {code}")

    def write(self, offset, data):
        to = ctypes.c_uint64(self.address + offset)
        self.call("cuMemcpyHtoDAsync_v2", to, ctypes.c_char_p(data), ctypes.c_size_t(len(data)), self.stream)
        self.finish()

    def read(self, offset, size):
        data = ctypes.create_string_buffer(size)
        at = ctypes.c_uint64(self.address + offset)
        self.call("cuMemcpyDtoHAsync_v2", data, at, ctypes.c_size_t(size), self.stream)
        self.finish()
        return data.raw

    def free(self):
        self.call("cuMemFree_v2", ctypes.c_uint64(self.address))


class HostMemory:
    """A NumPy array with the same functions."""

    def __init__(self, size):
        import numpy

        self.array = numpy.zeros(size, dtype=numpy.uint8)
        self.address = self.array.ctypes.data

    def write(self, offset, data):
        import numpy

        self.array[offset : offset + len(data)] = numpy.frombuffer(data, dtype=numpy.uint8)

    def read(self, offset, size):
        return self.array[offset : offset + size].tobytes()


MEMORY = {"DRAM": HostMemory, "VRAM": GpuMemory}


class Side:
    """An agent, and memory of one kind that it has registered."""

    def __init__(self, name, size, threads=True, kind="DRAM"):
        self.name = name
        self.kind = kind
        self.agent = make_agent(name, threads)
        self.memory = MEMORY[kind](size)
        self.address = self.memory.address
        self.registered = self.agent.register_memory(
            self.agent.get_reg_descs([(self.address, size, 0, "")], kind)
        )
        self.notifications = {}

    def metadata(self):
        return self.agent.get_agent_metadata(), self.address

    def register_more(self, kind, size):
        """Registers other memory, too. Returns its address."""
        self.more = MEMORY[kind](size)
        self.agent.register_memory(self.agent.get_reg_descs([(self.more.address, size, 0, "")], kind))
        return self.more.address

    def fill(self, seed, offset, size):
        self.memory.write(offset, pattern(size, seed).tobytes())

    def is_filled(self, seed, offset, size):
        return self.memory.read(offset, size) == pattern(size, seed).tobytes()

    def block(self, offset, size):
        return self.memory.read(offset, size)

    def deregister(self):
        self.agent.deregister_memory(self.registered)

    def know(self, metadata):
        return self.agent.add_remote_agent(metadata).decode()

    def take(self):
        for sender, texts in self.agent.get_new_notifs().items():
            self.notifications.setdefault(sender, []).extend(texts)

    def await_notifications(self, sender, count):
        limit = time.monotonic() + LIMIT_S
        while len(self.notifications.get(sender, [])) < count:
            if time.monotonic() > limit:
                raise TimeoutError(f"{self.name}: {self.notifications} instead of {count} of {sender}")
            self.take()
        return self.notifications.pop(sender)

    def notify(self, peer, text):
        self.agent.send_notif(peer, text)

    def prepare(self, operation, peer, peers_address, blocks, notification=b"", peers_kind="DRAM"):
        """blocks: triples of own offset, offset at the peer, size."""
        own = self.agent.get_xfer_descs([(self.address + o, s, 0) for o, _, s in blocks], self.kind)
        theirs = self.agent.get_xfer_descs([(peers_address + r, s, 0) for _, r, s in blocks], peers_kind)
        return self.agent.initialize_xfer(operation, own, theirs, peer, notification)

    def finish(self, handle, state):
        limit = time.monotonic() + LIMIT_S
        while state == "PROC":
            if time.monotonic() > limit:
                raise TimeoutError(f"{self.name}: a transfer does not end")
            state = self.agent.check_xfer_state(handle)
        return state

    def transfer(self, *arguments):
        handle = self.prepare(*arguments)
        try:
            return self.finish(handle, self.agent.transfer(handle))
        finally:
            handle.release()


def serve(pipe, kind, arguments):
    """The main function of a peer's process: makes a `kind`, and calls of it what the pipe asks for."""
    served = kind(*arguments)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(served, function)(*arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))


class Remote:
    """An object of the class `kind` in another process."""

    def __init__(self, name, kind, *arguments):
        self.name = name
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=serve, args=(theirs, kind, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, function, *arguments):
        self.pipe.send((function, arguments))

    def answer(self):
        if not self.pipe.poll(LIMIT_S):
            raise TimeoutError(f"agent {self.name} does not answer")
        is_ok, value = self.pipe.recv()
        if not is_ok:
            raise AssertionError(f"agent {self.name}: {value}")
        return value

    def call(self, function, *arguments):
        self.ask(function, *arguments)
        return self.answer()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def end(self):
        self.pipe.close()
        self.process.join(LIMIT_S)
        check(self.process.exitcode == 0, f"agent {self.name} ended with {self.process.exitcode}")


def start_peer(name, size, threads=True, kind="DRAM"):
    return Remote(name, Side, name, size, threads, kind)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def pair(size, threads=True, kinds=("DRAM", "DRAM")):
    """An agent here with memory of the first kind, and one in another process with memory of the second."""
    peer = start_peer("target", size, threads, kinds[1])
    side = Side("initiator", size, threads, kinds[0])
    metadata, address = peer.call("metadata")
    check(side.know(metadata) == "target", "the metadata names another agent")
    return side, peer, address


class Sides:
    """Some agents of one process."""

    def __init__(self, names, size):
        self.sides = [Side(name, size) for name in names]

    def metadata(self):
        return {side.name: side.metadata() for side in self.sides}

    def know_all(self, metadata):
        for side in self.sides:
            for name, (blob, _) in metadata.items():
                if name != side.name:
                    side.know(blob)

    def exchange(self, metadata, names):
        for side in self.sides:
            me = names.index(side.name)
            side.fill(me, me * 4096, 4096)
            for name, (_, address) in metadata.items():
                if name != side.name:
                    rows = [(me * 4096, me * 4096, 4096)]
                    state = side.transfer("WRITE", name, address, rows, side.name.encode())
                    check(state == "DONE", f"{side.name} to {name}")

    def check_all(self, names):
        for side in self.sides:
            for i, name in enumerate(names):
                if name == side.name:
                    continue
                check(side.await_notifications(name, 1) == [name.encode()], f"{name} to {side.name}")
                check(side.is_filled(i, i * 4096, 4096), f"data of {name} at {side.name}")
