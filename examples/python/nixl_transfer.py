"""Moves 1 GiB between two processes by NIXL, checks it, and prints the rate of each backend.

NIXL finds the backend DUNLIN in the folder of libplugin_DUNLIN.so:

    NIXL_PLUGIN_DIR=build/bindings/nixl python3 examples/python/nixl_transfer.py [DUNLIN] [UCX]
"""

import multiprocessing
import os
import sys
import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

SIZE = 1 << 30


def open_agent(name, backend, buffer):
    agent = nixl_agent(name, nixl_agent_config(backends=[]))
    agent.create_backend(backend, {})
    agent.register_memory(agent.get_reg_descs([(buffer.ctypes.data, SIZE, 0, "")], "DRAM"))
    return agent


def target(backend, pipe):
    buffer = numpy.zeros(SIZE, dtype=numpy.uint8)
    agent = open_agent("target", backend, buffer)
    pipe.send((agent.get_agent_metadata(), buffer.ctypes.data))
    for _ in range(2):
        while not agent.get_new_notifs():
            pass
    pipe.send(bool((buffer.reshape(-1, 256) == numpy.arange(256, dtype=numpy.uint8)).all()))
    pipe.recv()


def move(backend):
    pipe, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(backend, theirs))
    process.start()
    buffer = numpy.tile(numpy.arange(256, dtype=numpy.uint8), SIZE // 256)
    agent = open_agent("initiator", backend, buffer)
    metadata, address = pipe.recv()
    peer = agent.add_remote_agent(metadata)
    own = agent.get_xfer_descs([(buffer.ctypes.data, SIZE, 0)], "DRAM")
    theirs = agent.get_xfer_descs([(address, SIZE, 0)], "DRAM")
    handle = agent.initialize_xfer("WRITE", own, theirs, peer, b"written")
    for _ in range(2):  # the first one connects and touches the pages
        began = time.perf_counter()
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        seconds = time.perf_counter() - began
    is_right = state == "DONE" and pipe.recv()
    print(f"{backend}: {SIZE / seconds / 1e9:.2f} GB/s, {'the data is right' if is_right else 'FAILED'}", flush=True)
    pipe.send("done")
    process.join()
    sys.exit(0 if is_right else 1)


def main():
    multiprocessing.set_start_method("spawn")
    codes = []
    for backend in sorted(sys.argv[1:] or ["DUNLIN"]):
        if backend != "DUNLIN":
            os.environ.pop("NIXL_PLUGIN_DIR", None)  # where NIXL's own plugins are not
        process = multiprocessing.Process(target=move, args=(backend,))
        process.start()
        process.join()
        codes.append(process.exitcode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
