"""The NIXL backend, through NIXL's own Python package: agents in several processes.

Usage: nixl_test.py PLUGIN_FOLDER SCENARIO...

It needs a Python that has NIXL: this one, or the one that NIXL_PYTHON names (bindings/nixl/README.md). Without one, it
is skipped.
"""

import importlib.util
import multiprocessing
import os
import signal
import sys
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


class Side:
    """An agent and a buffer that it has registered."""

    def __init__(self, name, size, threads=True):
        import numpy

        self.name = name
        self.agent = make_agent(name, threads)
        self.buffer = numpy.zeros(size, dtype=numpy.uint8)
        self.address = self.buffer.ctypes.data
        self.registered = self.agent.register_memory(
            self.agent.get_reg_descs([(self.address, size, 0, "")], "DRAM")
        )
        self.notifications = {}

    def metadata(self):
        return self.agent.get_agent_metadata(), self.address

    def fill(self, seed, offset, size):
        self.buffer[offset : offset + size] = pattern(size, seed)

    def is_filled(self, seed, offset, size):
        return bool((self.buffer[offset : offset + size] == pattern(size, seed)).all())

    def block(self, offset, size):
        return self.buffer[offset : offset + size].tobytes()

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

    def prepare(self, operation, peer, peers_address, blocks, notification=b""):
        """blocks: triples of own offset, offset at the peer, size."""
        own = self.agent.get_xfer_descs([(self.address + o, s, 0) for o, _, s in blocks], "DRAM")
        theirs = self.agent.get_xfer_descs([(peers_address + r, s, 0) for _, r, s in blocks], "DRAM")
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


def start_peer(name, size, threads=True):
    return Remote(name, Side, name, size, threads)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def pair(size, threads=True):
    peer = start_peer("target", size, threads)
    side = Side("initiator", size, threads)
    metadata, address = peer.call("metadata")
    check(side.know(metadata) == "target", "the metadata names another agent")
    return side, peer, address


def sizes():
    """Writes and reads of 1 B to 256 MiB, each with a notification behind its data."""
    largest = 256 << 20
    side, peer, address = pair(largest)
    for seed, size in enumerate([1, 7, 64, 4096, 65537, 1 << 20, largest]):
        side.fill(seed, 0, size)
        text = b"written %d" % size
        check(side.transfer("WRITE", "target", address, [(0, 0, size)], text) == "DONE", f"write of {size}")
        check(peer.call("await_notifications", "initiator", 1) == [text], f"notification of {size}")
        check(peer.call("is_filled", seed, 0, size), f"data of {size}")
        peer.call("fill", seed + 100, 0, size)
        check(side.transfer("READ", "target", address, [(0, 0, size)], b"read") == "DONE", f"read of {size}")
        check(side.is_filled(seed + 100, 0, size), f"read data of {size}")
        check(peer.call("await_notifications", "initiator", 1) == [b"read"], f"notification of the read of {size}")
    peer.end()


def blocks():
    """10,000 blocks of 16 KiB in another order, prepared once and posted several times."""
    size, count = 16384, 10000
    side, peer, address = pair(size * count)
    order = [(i * 7919) % count for i in range(count)]
    rows = [(i * size, order[i] * size, size) for i in range(count)]
    write = side.prepare("WRITE", "target", address, rows, b"all")
    read = side.prepare("READ", "target", address, rows)
    for seed in range(3):
        side.fill(seed, 0, size * count)
        check(side.finish(write, side.agent.transfer(write)) == "DONE", "write")
        peer.call("await_notifications", "initiator", 1)
        for i in (0, 1, count // 2, count - 1):
            expected = side.buffer[i * size : (i + 1) * size].tobytes()
            check(peer.call("block", order[i] * size, size) == expected, f"block {i}")
        side.buffer[:] = 0
        check(side.finish(read, side.agent.transfer(read)) == "DONE", "read")
        check(side.is_filled(seed, 0, size * count), "the blocks that were read back")
    write.release(), read.release()
    peer.end()


def notifications():
    """Notifications arrive in order, those of transfers and others, of any size."""
    side, peer, address = pair(1 << 16)
    sent = []
    for i in range(500):
        text = b"%d " % i + b"x" * (i * i % 20000)
        sent.append(text)
        if i % 3 == 0:
            check(side.transfer("WRITE", "target", address, [(0, 0, 100)], text) == "DONE", "write")
        else:
            side.notify("target", text)
    check(peer.call("await_notifications", "initiator", len(sent)) == sent, "the order of notifications")
    peer.end()


def clique():
    """Eight agents, two of them in each process, write to and notify each other."""
    size, names = 4096 * 8, [f"agent {i}" for i in range(8)]
    hosts = [Remote(f"agents {i} and {i + 1}", Sides, names[i : i + 2], size) for i in range(0, 8, 2)]
    metadata = {}
    for host in hosts:
        metadata.update(host.call("metadata"))
    for host in hosts:
        host.call("know_all", metadata)
    for host in hosts:
        host.ask("exchange", metadata, names)
    for host in hosts:
        host.answer()
    for host in hosts:
        host.call("check_all", names)
    for host in hosts:
        host.end()


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


def local():
    """Transfers within one agent, and between two agents of one process."""
    side = Side("one", 1 << 20)
    other = Side("two", 1 << 20)
    side.fill(1, 0, 1000)
    check(side.transfer("WRITE", "one", side.address, [(0, 5000, 1000)], b"to myself") == "DONE", "local")
    check(side.is_filled(1, 5000, 1000), "local data")
    check(side.await_notifications("one", 1) == [b"to myself"], "local notification")
    side.know(other.metadata()[0])
    check(side.transfer("WRITE", "two", other.address, [(0, 0, 1000)]) == "DONE", "to the other agent")
    check(other.is_filled(1, 0, 1000), "data at the other agent")


def without_thread():
    """Without progress threads, the agents advance in what their programs call."""
    side, peer, address = pair(1 << 20, threads=False)
    side.fill(3, 0, 1 << 20)
    handle = side.prepare("WRITE", "target", address, [(0, 0, 1 << 20)], b"there")
    state = side.agent.transfer(handle)
    peer.ask("await_notifications", "initiator", 1)
    check(side.finish(handle, state) == "DONE", "write")
    check(peer.answer() == [b"there"], "notification")
    check(peer.call("is_filled", 3, 0, 1 << 20), "data")
    peer.end()


def fallback():
    """Where the peer's memory cannot be reached over shared memory, transfers take another transport."""
    side, peer, address = pair(1 << 20)
    side.fill(5, 0, 1 << 20)
    check(side.transfer("WRITE", "target", address, [(0, 0, 1 << 20)], b"written") == "DONE", "write")
    check(peer.call("await_notifications", "initiator", 1) == [b"written"], "notification")
    check(peer.call("is_filled", 5, 0, 1 << 20), "data")
    check(side.transfer("READ", "target", address, [(0, 0, 4096)]) == "DONE", "read")
    peer.end()


def death():
    """A peer dies between and during transfers; others go on, and a new one can come."""
    size = 64 << 20
    side, peer, address = pair(size)
    other = start_peer("other", 4096)
    metadata, others_address = other.call("metadata")
    side.know(metadata)
    check(side.transfer("WRITE", "target", address, [(0, 0, 100)]) == "DONE", "first write")
    handle = side.prepare("WRITE", "target", address, [(0, 0, size)])
    states = []
    for turn in range(100):
        try:
            state = side.agent.transfer(handle)
            if turn == 3:
                peer.kill()
            states.append(side.finish(handle, state))
        except Exception as error:
            states.append(type(error).__name__)
        if states[-1] != "DONE":
            break
    check(states[-1] != "DONE" and len(states) > 3, f"the death was not noticed: {states}")
    handle.release()
    check(side.transfer("WRITE", "other", others_address, [(0, 0, 100)]) == "DONE", "write to another")
    side.agent.remove_remote_agent("target")
    again = start_peer("target", size)
    metadata, address = again.call("metadata")
    side.know(metadata)
    side.fill(9, 0, 4096)
    check(side.transfer("WRITE", "target", address, [(0, 0, 4096)]) == "DONE", "write to the new one")
    check(again.call("is_filled", 9, 0, 4096), "data at the new one")
    again.end(), other.end()


def bad_input():
    """Damaged metadata, memory that is not registered, and descriptors that do not fit are errors."""
    side, peer, address = pair(4096)
    metadata, _ = peer.call("metadata")
    for damaged in (b"", b"garbage", metadata[:-1], metadata[:40], metadata[: len(metadata) // 2]):
        try:
            side.agent.add_remote_agent(damaged)
            raise AssertionError(f"{len(damaged)} damaged bytes were taken")
        except AssertionError:
            raise
        except Exception:
            side.know(metadata)
    for rows in ([(0, 4000, 200)], [(4000, 0, 200)]):
        try:
            state = side.transfer("WRITE", "target", address, rows)
            raise AssertionError(f"{rows}: {state}")
        except AssertionError:
            raise
        except Exception:
            pass
    check(side.transfer("WRITE", "target", address, [(0, 0, 4096)]) == "DONE", "the agent does not go on")
    # What the peer has deregistered cannot be written any more, and that is an error.
    handle = side.prepare("WRITE", "target", address, [(0, 0, 4096)])
    peer.call("deregister")
    try:
        state = side.finish(handle, side.agent.transfer(handle))
    except Exception as error:
        state = type(error).__name__
    check(state != "DONE", "a write to memory that was deregistered succeeded")
    peer.end()

SCENARIOS = {
    function.__name__: function
    for function in (sizes, blocks, notifications, clique, local, without_thread, fallback, death, bad_input)
}


def find_nixl():
    """Returns if this interpreter has NIXL; otherwise goes on with the one that has, or ends as a skipped test."""
    if importlib.util.find_spec("nixl_cu12"):
        return
    other = os.environ.pop("NIXL_PYTHON", "")
    if os.access(other, os.X_OK):
        os.execv(other, [other, *sys.argv])
    print("skipped: needs the Python package nixl-cu12; tools/check installs it into build/nixl_venv")
    sys.exit(77)


def main():
    find_nixl()
    folder, names = sys.argv[1], sys.argv[2:] or list(SCENARIOS)
    os.environ["NIXL_PLUGIN_DIR"] = folder
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    multiprocessing.set_start_method("spawn")
    for name in names:
        began = time.monotonic()
        SCENARIOS[name]()
        print(f"{name}: passed in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
