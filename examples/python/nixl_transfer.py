"""Moves 1 GiB (--mib) between two processes by NIXL, checks it, and prints the rate of each backend.

NIXL finds the backend DUNLIN in the folder of libplugin_DUNLIN.so, and has UCX itself:

    NIXL_PLUGIN_DIR=build/bindings/nixl python3 examples/python/nixl_transfer.py [--mib 1024] [DUNLIN] [UCX]
"""

import argparse
import multiprocessing
import os
import sys
import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config


def open_agent(name, backend, buffer):
    agent = nixl_agent(name, nixl_agent_config(backends=[]))
    agent.create_backend(backend, {})
    agent.register_memory(agent.get_reg_descs([(buffer.ctypes.data, buffer.size, 0, "")], "DRAM"))
    return agent


def target(backend, size, pipe):
    buffer = numpy.zeros(size, dtype=numpy.uint8)
    agent = open_agent("target", backend, buffer)
    pipe.send((agent.get_agent_metadata(), buffer.ctypes.data))
    arrived = 0
    while arrived < 2:  # both may have come when it asks for the first time
        arrived += sum(map(len, agent.get_new_notifs().values()))
    pipe.send(bool((buffer.reshape(-1, 256) == numpy.arange(256, dtype=numpy.uint8)).all()))
    pipe.recv()


def move(backend, size):
    pipe, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(backend, size, theirs))
    process.start()
    buffer = numpy.tile(numpy.arange(256, dtype=numpy.uint8), size // 256)
    agent = open_agent("initiator", backend, buffer)
    metadata, address = pipe.recv()
    peer = agent.add_remote_agent(metadata)
    own = agent.get_xfer_descs([(buffer.ctypes.data, size, 0)], "DRAM")
    theirs = agent.get_xfer_descs([(address, size, 0)], "DRAM")
    handle = agent.initialize_xfer("WRITE", own, theirs, peer, b"written")
    for _ in range(2):  # the first one connects and touches the pages
        began = time.perf_counter()
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        seconds = time.perf_counter() - began
    is_right = state == "DONE" and pipe.recv()
    print(f"{backend}: {size / seconds / 1e9:.2f} GB/s, {'the data is right' if is_right else 'FAILED'}", flush=True)
    pipe.send("done")
    process.join()
    sys.exit(0 if is_right else 1)


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError("1 or more")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help="default: DUNLIN and UCX")
    parser.add_argument("--mib", type=positive, default=1024, metavar="N", help="how much, in MiB (default: %(default)s)")
    options = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    codes = []
    for backend in sorted(options.backends or ["DUNLIN", "UCX"]):
        if backend != "DUNLIN":
            os.environ.pop("NIXL_PLUGIN_DIR", None)  # where NIXL's own plugins are not
        process = multiprocessing.Process(target=move, args=(backend, options.mib << 20))
        process.start()
        process.join()
        codes.append(process.exitcode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
