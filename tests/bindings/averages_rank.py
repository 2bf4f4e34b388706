"""A rank of job_test.py that averages its model with others, as python_rank.py: dunlin-run -n N python3 averages_rank.py
PART
"""

import os
import signal
import sys
import threading
import time

import dunlin
import numpy as np


def say(text):
    print(text, flush=True)


def pairs_killed():
    """Rank 0 dies. The others train to the end, with models that are averages of the initial ones."""
    pairs = dunlin.PairAverage(20_000)
    model = np.full(20_000, dunlin.rank(), np.float32)
    for step in range(60):
        if dunlin.rank() == 0 and step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        pairs.average(model)
    pairs.leave(model)
    say(f"{pairs.statistics()['iterations']} iterations")
    say("averages" if 0 <= model.min() == model.max() <= 3 else f"wrong: {model}")


def servers_killed():
    """Rank 0 dies, which is a worker, or rank 3, which is a server. sys.argv: the victim, and whether it is asynchronous."""
    victim, asynchronous = int(sys.argv[2]), sys.argv[3] == "async"
    servers = dunlin.ParameterServers(20_000, 2, asynchronous)
    model, ones = np.zeros(20_000, np.float32), np.ones(20_000, np.float32)
    try:
        if servers.is_server:
            while dunlin.rank() == victim and servers.statistics()["updates"] < 10:
                time.sleep(0.001)
            if dunlin.rank() == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            servers.serve()
        else:
            for step in range(60 if asynchronous and victim == 0 else 1_000_000):
                if dunlin.rank() == victim and step == 10:
                    os.kill(os.getpid(), signal.SIGKILL)
                kept = model.copy()
                servers.step(model, ones, 0.5)
            servers.leave()
        say("went on")
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead, model kept {servers.is_server or (model == kept).all()}")
        try:
            servers.serve() if servers.is_server else servers.step(model, ones, 0.5)
        except dunlin.PeerDeadError as error:
            say(f"again {error.peer}")


def stochastic_killed():
    """Rank 2 dies while the others wait for it, or for ranks that wait for it. All are told, the ones that only test as
    well."""
    reduce = dunlin.StochasticReduce(20_000, "ring", sys.argv[2])
    model = np.full(20_000, dunlin.rank(), np.float32)
    for _ in range(5):
        reduce.average(model)
    dunlin.barrier()
    if dunlin.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for step in range(1_000_000):
            kept = model.copy()
            if dunlin.rank() == 0:
                request = reduce.start_average(model)
                while not request.test():
                    pass
            else:
                reduce.average(model)
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead, model kept {(model == kept).all()}")
    try:
        reduce.average(model)
    except dunlin.PeerDeadError as error:
        say(f"again {error.peer}")


def ring_killed():
    """Rank 2 dies while the others wait for it, or for ranks that wait for it. All are told, the one that only tests as
    well."""
    ring = dunlin.StragglerRing(20_000)
    for _ in range(5):
        ring.all_reduce()
    dunlin.barrier()
    if dunlin.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            if dunlin.rank() == 0:
                request = ring.start_all_reduce()
                while not request.test():
                    pass
            else:
                ring.all_reduce()
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead")
    try:
        ring.all_reduce()
    except dunlin.PeerDeadError as error:
        say(f"again {error.peer}")


def stochastic_computes():
    """Rank 0 has ended its average and makes no calls. Its model and its acknowledgment reach rank 1 all the same."""
    told = []
    signal.signal(signal.SIGUSR1, lambda *_: told.append(True))
    pids = dunlin.all_gather(np.array(os.getpid()))
    count = 1_000_000
    both = dunlin.StochasticReduce(count, "complete")
    back = dunlin.StochasticReduce(count, dunlin.graph.from_edges(2, [(1, 0)]), depth=1)
    model = np.full(count, dunlin.rank(), np.float32)
    if dunlin.rank() == 0:
        requests = [both.start_average(model), back.start_average(model.copy())]
        for request in requests:
            request.wait()
        until = time.monotonic() + 60
        while not told and time.monotonic() < until:
            time.sleep(0.05)
        say("computed" if told else "no rank was reached")
    else:
        first = back.start_average(model.copy())
        both.average(model)
        first.wait()
        back.average(model)  # its slot at rank 0 is free again
        say(f"model {model[-1]}")
        os.kill(pids[0], signal.SIGUSR1)


def left_open():
    """The job ends with averages in progress, and without leave() or free()."""
    count = 100_000
    models = [np.full(count, dunlin.rank(), np.float32) for _ in range(3)]
    reduce = dunlin.StochasticReduce(count, "complete")
    pairs = dunlin.PairAverage(count)
    servers = dunlin.ParameterServers(count, asynchronous=True)
    requests = [reduce.start_average(models[0]), pairs.start_average(models[1])]
    if not servers.is_server:
        requests.append(servers.start_step(models[2], np.ones(count, np.float32), 1.0))
    dunlin.shutdown()
    say(f"average {requests[0].wait()[0]:.0f}, ended {all(request.test() for request in requests)}")
    calls = [lambda: reduce.average(models[0]), reduce.statistics, reduce.free, lambda: pairs.average(models[1]), pairs.leave,
             pairs.statistics, lambda: servers.step(models[2], models[2], 1.0), servers.serve, servers.leave]
    for call in calls:
        try:
            call()
            say("no error")
        except dunlin.ClosedError:
            pass
    say("closed")


def stochastic_left():
    """Rank 1 ends without the average that rank 0 waits for."""
    reduce = dunlin.StochasticReduce(10)
    if dunlin.rank() == 1:
        dunlin.barrier()
        raise ValueError("on purpose")
    request = reduce.start_average(np.zeros(10, np.float32))
    dunlin.barrier()
    try:
        while not request.test():
            pass
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} left")
    try:
        reduce.average(np.zeros(10, np.float32))
    except dunlin.Error:
        say("again")


def stochastic_interrupted():
    """Ctrl-C ends the wait, and not the average. Meanwhile no other one can begin."""
    reduce = dunlin.StochasticReduce(10, "complete")
    model = np.full(10, dunlin.rank(), np.float32)
    if dunlin.rank() == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            reduce.average(model)
        except KeyboardInterrupt:
            say(f"interrupted, model {model[0]}")
        try:
            reduce.average(model)
        except dunlin.InvalidArgumentError:
            say("in progress")
        dunlin.barrier()
        while reduce.statistics()["reduces"] == 0:
            time.sleep(0.01)
        say(f"model {model[0]}")
    else:
        dunlin.barrier()
        reduce.average(model)
    dunlin.barrier()


if __name__ == "__main__":
    dunlin.init()
    globals()[sys.argv[1]]()
