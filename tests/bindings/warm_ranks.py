"""Ranks that are forked from a process which has loaded PyTorch: to load it takes longer than most tests' work.

Warm() starts that process. The ranks find each other by the variables of torchrun, and nobody ends the others when one of
them dies.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time


class Warm:
    def __init__(self, environment=None):
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         env=environment)

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, ranks, program, *arguments, seconds=100):
        """[(exit code, output)] by rank. A rank that still runs after so many seconds is killed: its code is -9."""
        request = {"ranks": ranks, "program": program, "arguments": arguments, "seconds": seconds}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return [tuple(result) for result in json.loads(self._process.stdout.readline())]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def become_rank(output, rank, port, request):
    """Makes this process, which was just forked, a rank."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    os.closerange(3, max(output, nothing) + 1)
    number, size = str(rank), str(request["ranks"])
    os.environ.update(RANK=number, LOCAL_RANK=number, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    sys.argv = [request["program"], *request["arguments"]]


def collect(pids, outputs, until):
    """[(exit code, output)] of the ranks. What still runs then is killed."""
    texts = {output: b"" for output in outputs}
    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(max(until - time.monotonic(), 0)):
                if chunk := os.read(key.fd, 65536):
                    texts[key.fd] += chunk
                else:
                    selector.unregister(key.fd)
            if time.monotonic() >= until:
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                break
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    for output in outputs:
        os.close(output)
    return [(code, texts[output].decode(errors="replace")) for code, output in zip(codes, outputs)]


def serve():
    """Carries out requests; returns in each rank."""
    for line in sys.stdin:
        request = json.loads(line)
        pids, outputs, port = [], [], free_port()
        for rank in range(request["ranks"]):
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                become_rank(theirs, rank, port, request)
                return
            os.close(theirs)
            pids.append(pid)
            outputs.append(ours)
        print(json.dumps(collect(pids, outputs, time.monotonic() + request["seconds"])), flush=True)
    sys.exit()


if __name__ == "__main__":
    import torch  # noqa: F401
    import torch.distributed  # noqa: F401

    serve()
    with open(sys.argv[0], encoding="utf-8") as file:
        exec(compile(file.read(), sys.argv[0], "exec"))
