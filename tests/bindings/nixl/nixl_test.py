"""The NIXL backend, through NIXL's own Python package: agents in several processes.

Usage: nixl_test.py PLUGIN_FOLDER SCENARIO...

It needs a Python that has NIXL: this one, or the one that NIXL_PYTHON names (bindings/nixl/README.md). Without one, it
is skipped. The scenarios gpu* need a CUDA driver.
"""

import importlib.util
import multiprocessing
import os
import re
import subprocess
import sys
import time

from nixl_sides import GpuMemory, HostMemory, Remote, Side, Sides, check, pair, start_peer


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
            expected = side.block(i * size, size)
            check(peer.call("block", order[i] * size, size) == expected, f"block {i}")
        side.memory.write(0, bytes(size * count))
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


def gpu():
    """Writes and reads with GPU memory on one side or both, each with a notification behind its data."""
    for kinds in (("VRAM", "VRAM"), ("DRAM", "VRAM"), ("VRAM", "DRAM")):
        side, peer, address = pair(1 << 20, kinds=kinds)
        for seed, size in enumerate([1, 4097, 1 << 20]):
            side.fill(seed, 0, size)
            text = b"written %d" % size
            state = side.transfer("WRITE", "target", address, [(0, 0, size)], text, kinds[1])
            check(state == "DONE", f"{kinds}: write of {size}: {state}")
            check(peer.call("await_notifications", "initiator", 1) == [text], f"{kinds}: notification of {size}")
            check(peer.call("is_filled", seed, 0, size), f"{kinds}: data of {size}")
            peer.call("fill", seed + 100, 0, size)
            state = side.transfer("READ", "target", address, [(0, 0, size)], b"read", kinds[1])
            check(state == "DONE", f"{kinds}: read of {size}: {state}")
            check(side.is_filled(seed + 100, 0, size), f"{kinds}: read data of {size}")
            check(peer.call("await_notifications", "initiator", 1) == [b"read"], f"{kinds}: notification of a read")
        block, count = 4096, 256
        side.fill(7, 0, block * count)
        rows = [(i * block, (i * 37) % count * block, block) for i in range(count)]
        state = side.transfer("WRITE", "target", address, rows, b"blocks", kinds[1])
        check(state == "DONE", f"{kinds}: blocks: {state}")
        peer.call("await_notifications", "initiator", 1)
        for own, theirs, _ in rows:
            check(peer.call("block", theirs, block) == side.block(own, block), f"{kinds}: block {own // block}")
        peer.end()


def gpu_within_process():
    """Transfers of GPU memory within one agent, and between two agents of one process."""
    side, other = (Side(name, 1 << 16, kind="VRAM") for name in ("one", "two"))
    side.fill(1, 0, 1000)
    state = side.transfer("WRITE", "one", side.address, [(0, 5000, 1000)], b"", "VRAM")
    check(state == "DONE" and side.is_filled(1, 5000, 1000), f"within one agent: {state}")
    side.know(other.metadata()[0])
    state = side.transfer("WRITE", "two", other.address, [(0, 0, 1000)], b"", "VRAM")
    check(state == "DONE" and other.is_filled(1, 0, 1000), f"to the other agent: {state}")


def gpu_bad_input():
    """Host memory that is registered as GPU memory, and GPU memory that was freed, are errors."""
    side = Side("initiator", 4096, kind="VRAM")
    host, freed = HostMemory(4096), GpuMemory(4096)
    freed.free()
    for memory in (host, freed):
        try:
            side.agent.register_memory(side.agent.get_reg_descs([(memory.address, 4096, 0, "")], "VRAM"))
        except Exception:
            continue
        raise AssertionError(f"{type(memory).__name__} was registered as GPU memory")
    side.fill(3, 0, 100)
    check(side.transfer("WRITE", "initiator", side.address, [(0, 1000, 100)], b"", "VRAM") == "DONE", "afterwards")


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
    # More notifications than there are slots for messages, after which this agent's program calls nothing.
    texts = [b"%d" % number for number in range(64)]
    for text in texts:
        side.notify("target", text)
    check(peer.call("await_notifications", "initiator", len(texts)) == texts, "notifications without further calls")
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


def gpu_fallback():
    """A transfer that shared memory carries goes on when another one needs memory that it cannot reach."""
    size, times = 64 << 20, 32
    peer = start_peer("target", size, kind="VRAM")
    host_address = peer.call("register_more", "DRAM", 4096)
    side = Side("initiator", size, threads=False)
    metadata, gpu_address = peer.call("metadata")
    side.know(metadata)
    side.fill(7, 0, size)
    check(side.transfer("WRITE", "target", gpu_address, [(0, 0, 4096)], b"", "VRAM") == "DONE", "first write")
    # Without a thread, a transfer posts 8 MiB with each call. So the long one posts for 256 calls.
    long = side.prepare("WRITE", "target", gpu_address, [(0, 0, size)] * times, b"long", "VRAM")
    short = side.prepare("WRITE", "target", host_address, [(0, 0, 4096)], b"short")
    states = [side.agent.transfer(handle) for handle in (short, long)]
    check(states == ["PROC", "PROC"], f"a transfer is done at once: {states}")
    check(side.finish(short, "PROC") == "DONE", "the write to host memory")
    check(side.finish(long, "PROC") == "DONE", "the long write")
    check(sorted(peer.call("await_notifications", "initiator", 2)) == [b"long", b"short"], "notifications")
    check(peer.call("is_filled", 7, 0, size), "data of the long write")
    long.release(), short.release()
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


def example():
    """The example moves memory with this backend and with NIXL's own, and fails with one that there isn't."""
    folder = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(folder, "..", "..", "..", "examples", "python", "nixl_transfer.py")

    def run(*backends):
        return subprocess.run([sys.executable, program, "--mib", "16", *backends], capture_output=True, text=True,
                              timeout=100, check=False)

    found = run()
    lines = re.findall(r"^(\w+): (\d+\.\d\d) GB/s, the data is right$", found.stdout, re.MULTILINE)
    check(found.returncode == 0 and [name for name, _ in lines] == ["DUNLIN", "UCX"], found.stdout + found.stderr)
    check(all(float(rate) > 0 for _, rate in lines), found.stdout)
    check(run("NO_SUCH_BACKEND").returncode != 0, "a backend that there isn't was used")


SCENARIOS = {
    function.__name__: function
    for function in (
        sizes, blocks, notifications, clique, local, without_thread, fallback, death, bad_input,
        gpu, gpu_within_process, gpu_bad_input, gpu_fallback, example,
    )
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
