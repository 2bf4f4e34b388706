"""Ranks that are forked from a process which has loaded PyTorch: to load it takes longer than most tests' work.

Warm() starts that process. The ranks find each other by the variables of torchrun, and nobody ends the others when one of
them dies.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from job import end_with_parent  # noqa: E402
from ports import free_ports  # noqa: E402


class Warm:
    """`environment`: of the ranks, but for what tells them their ranks."""

    def __init__(self, environment):
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         env=environment)

    def close(self):
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended
        self._process.wait()
        self._process.stdout.close()

    def run(self, ranks, program, *arguments, variables=None, seconds=100):
        """[(exit code, output)] by rank. AssertionError if a rank, or what it has started, still runs after so many seconds.

        `variables` are further ones of the ranks' environment.
        """
        request = {"ranks": ranks, "program": program, "arguments": arguments, "variables": variables or {},
                   "seconds": seconds}
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, so that there is no answer
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError("the process that forks ranks has ended")
        answer = json.loads(answer)
        if answer["running"]:
            raise AssertionError(f"after {seconds} s, {answer['running']} still run:\n{answer['results']}")
        return [tuple(result) for result in answer["results"]]


def become_rank(output, rank, port, request):
    """Makes this process, which was just forked, a rank, with a process group of its own. It ends with its parent."""
    os.setpgid(0, 0)
    end_with_parent()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    os.closerange(3, max(output, nothing) + 1)
    number, size = str(rank), str(request["ranks"])
    os.environ.update(RANK=number, LOCAL_RANK=number, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), **request["variables"])
    sys.argv = [request["program"], *request["arguments"]]


def collect(pids, outputs, until):
    """What Warm.run() reads: what ranks do not end in time is killed, and named in "running"."""
    texts = {output: b"" for output in outputs}
    running = []
    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < until:
            for key, _ in selector.select(max(until - time.monotonic(), 0)):
                if chunk := os.read(key.fd, 65536):
                    texts[key.fd] += chunk
                else:
                    selector.unregister(key.fd)
        running += [f"the output of rank {outputs.index(output)}" for output in selector.get_map()]
    codes = []
    for rank, pid in enumerate(pids):
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        if ended[0] == 0:
            running.append(f"rank {rank}")
        if running:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if ended[0] == 0:
            ended = os.waitpid(pid, 0)
        codes.append(os.waitstatus_to_exitcode(ended[1]))
    for output in outputs:
        os.close(output)
    return {"running": running,
            "results": [(code, texts[output].decode(errors="replace")) for code, output in zip(codes, outputs)]}


def serve():
    """Carries out requests; returns in each rank."""
    for line in sys.stdin:
        request = json.loads(line)
        pids, outputs, port = [], [], free_ports(2)  # Dunlin listens at the one behind MASTER_PORT
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
    import torch.nn.parallel  # noqa: F401

    with contextlib.suppress(ImportError):
        import networkx  # noqa: F401

    serve()
    __file__ = sys.argv[0]
    with open(__file__, encoding="utf-8") as file:
        exec(compile(file.read(), __file__, "exec"))
