"""A rank of job_test.py, which checks every line that it prints: dunlin-run -n N python3 python_rank.py PART"""

import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings

import dunlin
import numpy as np


def say(text):
    print(text, flush=True)


def listen():
    """The numbers of the signals that have come from other ranks so far, and the process ids of all ranks."""
    told = set()
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: told.add(number))
    return told, dunlin.all_gather(np.array(os.getpid()))


def interrupted():
    """Rank 0 waits for the others, which come only after its Ctrl-C. Then everything continues."""
    x = np.full(5000, dunlin.rank() + 1.0)
    over = dunlin.split(0)
    if dunlin.rank() == 0:
        began = time.monotonic()
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()  # the call has begun by then
        try:
            dunlin.all_reduce(x, out=x)
            say("not interrupted")
        except KeyboardInterrupt:
            say(f"interrupted after {time.monotonic() - began:.2f} s")
    over.barrier()
    if dunlin.rank() > 0:
        dunlin.all_reduce(x, out=x)
    # The interrupted call has continued, and the next ones match.
    dunlin.barrier()
    say("sum" if (x == sum(range(1, dunlin.size() + 1))).all() else f"wrong: {x}")
    waited = dunlin.start_all_reduce(x).wait()
    if dunlin.rank() == 0:
        say("waited" if waited[0] == x[0] * dunlin.size() else "wrong")


def steps():
    """The steps of the program's loop are in its metrics."""
    for number in range(1, 4):
        dunlin.begin_step(number)
        dunlin.barrier()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.environ["METRICS"].replace("%r", str(dunlin.rank())))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    found = re.search(r"(?m)^dunlin_steps_total\{.*\} (\d+)$", text)
    say(f"{found.group(1)} steps" if found else text)
    dunlin.barrier()


def expired():
    """A wait with a timeout of its own. The operation continues after it."""
    over = dunlin.split(0)
    if dunlin.rank() > 0:
        over.barrier()
    request = dunlin.start_all_reduce(np.array(1))
    if dunlin.rank() == 0:
        began = time.monotonic()
        try:
            request.wait(timeout=0.2)
            say("no expiry")
        except dunlin.DeadlineExceededError as error:
            elapsed = time.monotonic() - began
            say(f"expired after {elapsed:.3f} s" if isinstance(error, TimeoutError) and error.peer else "wrong error")
            say(f"text: {error}")
        over.barrier()
    say(f"result {request.wait()}")


def joined_again():
    """Cells of a notebook that run again: init() in a job, and the import."""
    world = dunlin.world()
    request = dunlin.start_all_reduce(np.ones(1000))
    dunlin.init()
    dunlin.init(background_progress=False)
    say("same job" if dunlin.world() is world and request.wait()[0] == dunlin.size() else "another job")
    importlib.reload(dunlin)
    say("reloaded" if dunlin.all_reduce(np.ones(1))[0] == dunlin.size() else "lost")


def secret():
    """No program that a rank starts inherits the secret, in whatever way it is started."""
    ways = [dict(os.environ), None]
    found = [subprocess.run(["env"], env=env, capture_output=True, text=True, check=True).stdout for env in ways]
    found.append(str(os.environ))
    say(" ".join(str("DUNLIN_JOB_SECRET'" in text or "DUNLIN_JOB_SECRET=" in text) for text in found))


def named():
    """Calls of two names in different orders on different ranks. Matched by order, they would mix a with b."""
    values = {"a": 1.0, "b": 100.0}
    if sys.argv[2] in ("torch", "partial"):
        import dunlin.torch as bf
        import torch
        bf.init()

        def average(name):
            x = torch.full((3,), values[name])
            return bf.allreduce(x, name=name) if sys.argv[2] == "torch" else bf.partial_allreduce(x, [0, 1], name=name)
    else:
        def average(name):
            return dunlin.all_reduce(np.full(3, values[name]), "avg", name=name)
    say("agreed" if average("a")[0] == 1 and average("b")[0] == 100 else "wrong")
    try:
        for name in ("a", "b") if dunlin.rank() == 0 else ("b", "a"):
            say(f"{name} is {average(name)[0]}")
    except dunlin.InvalidArgumentError as error:
        say(f"refused: {error}")


def named_each():
    """Each collective call in different orders, in a communicator of its own, as an error ends that."""
    x = np.ones(2, np.float32)
    calls = {"reduce": lambda world, name: world.reduce(x, name=name),
             "all_gather": lambda world, name: world.all_gather(x, name=name),
             "reduce_scatter": lambda world, name: world.start_reduce_scatter(x, name=name).wait(),
             "all_to_all": lambda world, name: world.all_to_all(x, name=name),
             "barrier": lambda world, name: world.barrier(name)}
    for what, call in calls.items():
        part = dunlin.world().split(0)
        call(part, "both")
        try:
            call(part, "ab"[dunlin.rank()])
            say(f"{what}: not refused")
        except dunlin.InvalidArgumentError as error:
            is_named = all(word in str(error) for word in ('named "a"', 'named "b"'))
            say(f"{what}: {'named' if is_named else error}")
    dunlin.barrier()


def named_others():
    """The same of other operations. Those that exchange with neighbors match by name, in any order."""
    import dunlin.torch as bf
    import torch
    bf.init()
    bf.set_machine_topology(bf.FullyConnectedGraph(bf.machine_size()))
    everybody = list(range(bf.size()))
    mean = sum(everybody) / bf.size()
    values = {"a": 1.0, "b": 100.0}
    start, offsets = {
        "broadcast": (lambda x, name: bf.broadcast_nonblocking(x, 0, name=name), [0]),
        "allgather": (lambda x, name: bf.allgather_nonblocking(x, name=name), everybody),
        "local": (lambda x, name: bf.allreduce_nonblocking(x, is_hierarchical_local=True, name=name), [mean]),
        "hierarchical": (lambda x, name: bf.hierarchical_neighbor_allreduce_nonblocking(x, name=name), [mean]),
    }[sys.argv[2]]
    names = ("a", "b") if bf.rank() % 2 == 0 else ("b", "a")
    try:
        handles = {name: start(torch.full((1,), values[name] + bf.rank()), name) for name in names}
        found = {name: bf.synchronize(handle).tolist() for name, handle in handles.items()}
        wanted = {name: [values[name] + offset for offset in offsets] for name in names}
        say("matched" if found == wanted else f"wrong: {found}")
    except dunlin.InvalidArgumentError as error:
        say(f"refused: {error}")


def overlapping():
    """Progress without calls: while rank 0 computes in Python, the background thread does its part of an all-reduce."""
    x = np.ones(1 << 20, np.float32)
    told, pids = listen()
    if dunlin.rank() == 0:
        request = dunlin.start_all_reduce(x, out=x)
        os.kill(pids[1], signal.SIGUSR1)
        until = time.monotonic() + (2 if "quiet" in sys.argv else 60)
        while not told and time.monotonic() < until:
            pass
        ended = time.monotonic()
        while not request.test() and time.monotonic() < until:
            time.sleep(0.01)  # Rank 1 may know of the end first.
        say(f"computed, then {request.test()}")
        request.wait()
    else:
        while not told:
            time.sleep(0.01)  # Rank 0's only call must not do it.
        dunlin.all_reduce(x, out=x)
        ended = time.monotonic()
        os.kill(pids[0], signal.SIGUSR1)
    say("sum" if (x == dunlin.size()).all() else "wrong")
    computed, waited = dunlin.all_gather(np.array(ended))  # All processes of a host have this clock.
    say("early" if waited < computed else "late")


def killed():
    dunlin.all_reduce(np.ones(3))
    if dunlin.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        while True:
            dunlin.all_reduce(np.ones(100000))
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead after {time.monotonic() - began:.1f} s: {error}")
    try:
        dunlin.barrier()
    except dunlin.PeerDeadError as error:
        say(f"again {error.peer}")


def killed_while_testing():
    """A rank that only calls test() learns of a death as well."""
    if dunlin.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        request = dunlin.start_barrier()  # the death may be known already
        while not request.test():
            time.sleep(0.01)
        say("over")
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead")


def raising():
    """An exception on one rank ends it at once. The others get an error."""
    dunlin.all_reduce(np.ones(3))
    if dunlin.rank() == 1:
        raise ValueError("on purpose")
    began = time.monotonic()
    try:
        dunlin.barrier()
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} left after {time.monotonic() - began:.1f} s")


def leaving():
    """Ranks that end at different times without shutdown(); rank 0 has an operation that it never waited for."""
    x = np.ones(300000)
    request = dunlin.start_all_reduce(x, out=x)
    if dunlin.rank() == 0:
        say("ends")
        return
    time.sleep(1)
    request.wait()
    say("sum" if (x == dunlin.size()).all() else "wrong")


def shut_down():
    x = dunlin.zeros(10)
    x[:] = dunlin.rank()
    world = dunlin.world()
    dunlin.all_reduce(x, out=x)
    request = world.start_all_reduce(np.ones(3))
    dunlin.shutdown()
    dunlin.shutdown()
    say(f"initialized {dunlin.is_initialized()}, memory {x[3]:.0f}")
    for call in (dunlin.rank, dunlin.barrier, world.barrier, lambda: dunlin.start_barrier()):
        try:
            call()
            say("no error")
        except dunlin.ClosedError:
            say("closed")
    say("over" if request.test() else "not over")


def threads():
    """Threads with a communicator each, all waiting at the same time, while another one computes."""
    parts = [dunlin.split(0) for _ in range(3)]
    wrong = []

    def work(part, seed):
        for i in range(200):
            x = np.full(1 + 100 * seed, dunlin.rank() + i)
            if not (part.all_reduce(x) == sum(range(dunlin.size())) + dunlin.size() * i).all():
                wrong.append((seed, i))

    workers = [threading.Thread(target=work, args=(part, seed)) for seed, part in enumerate(parts)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    say(f"wrong {wrong}")


def forked():
    """After fork(), the job and operations in progress belong to the parent."""
    request = dunlin.start_barrier() if dunlin.rank() == 0 else None
    warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for forks of processes with threads
    pid = os.fork()
    if pid == 0:
        try:
            if request is not None:
                request.wait(1)
                os._exit(2)
        except dunlin.ClosedError:
            pass
        del request
        sys.exit(0 if not dunlin.is_initialized() else 1)
    child = os.waitpid(pid, 0)[1]
    if dunlin.rank() == 0:
        request.wait()
    else:
        time.sleep(0.5)
        dunlin.barrier()
    say(f"child {child}, sum {dunlin.all_reduce(np.array(1))}")


def owner_killed():
    """Rank 1 dies while it holds the mutex. The next rank gets it, and is told of the death."""
    mutex = dunlin.Mutex("victim's")
    if dunlin.rank() == 1:
        mutex.lock()
    dunlin.barrier()
    if dunlin.rank() == 1:
        time.sleep(0.2)  # while the others wait for it
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    died = mutex.lock()
    say(f"died {died} after {time.monotonic() - began:.1f} s")
    mutex.unlock()
    # free() doesn't wait if a rank is dead, and the other survivor may still need the owner rank.
    survivor = 2 - dunlin.rank()
    dunlin.neighbor_gather(np.ones(1), [survivor], [survivor])
    try:
        mutex.free()
    except dunlin.PeerDeadError as error:
        say(f"freed without {error.peer}")


def partial_killed():
    """Rank 2 dies while the others wait for it in a group. Groups without it continue."""
    all_ranks = list(range(dunlin.size()))
    dunlin.partial_all_reduce(np.ones(3), all_ranks)
    if dunlin.rank() == 2:
        time.sleep(0.3)  # while the others wait for it
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        dunlin.partial_all_reduce(np.ones(100_000), all_ranks)
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead after {time.monotonic() - began:.1f} s")
    survivors = [rank for rank in all_ranks if rank != 2]
    for _ in range(20):
        total = dunlin.partial_all_reduce(np.full(100_000, dunlin.rank()), survivors, "sum")
    say(f"sum {total[7]}")
    try:
        dunlin.partial_all_reduce(np.ones(1), all_ranks)
    except dunlin.PeerDeadError as error:
        say(f"again {error.peer}")


def partial_absent():
    """Rank 1 never makes its calls. They are given up at the deadline, and later calls continue."""
    x = np.full(10, dunlin.rank())
    if dunlin.rank() == 0:
        late = dunlin.start_partial_all_reduce(x, [0, 1], "sum", number=1)
        behind = dunlin.start_partial_all_reduce(x, [0, 2], "sum", number=2)
        began = time.monotonic()
        say(f"behind {behind.wait(timeout=60)[0]}")
        say("after the deadline" if time.monotonic() - began > 1 else "early")
        try:
            late.wait()
        except dunlin.DeadlineExceededError as error:
            say(f"peer {error.peer} absent")
        try:
            dunlin.partial_all_reduce(x, [0, 1], number=3)
        except dunlin.DeadlineExceededError as error:
            say(f"peer {error.peer} absent")
    elif dunlin.rank() == 2:
        time.sleep(1.5)  # half of the deadline of 3 s, so that rank 0's next call finds it alive
        say(f"behind {dunlin.start_partial_all_reduce(x, [0, 2], 'sum', number=2).wait(timeout=60)[0]}")
    dunlin.start_barrier().wait(timeout=60)


def groups_killed():
    """The rank that forms groups dies. The next rank takes over, and the others train to the end."""
    groups = dunlin.GroupAverage(20_000)
    model = np.full(20_000, dunlin.rank(), np.float32)
    for iteration in range(80):
        if dunlin.rank() == 0 and iteration == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        groups.average(model, iteration)
    statistics = groups.statistics()
    groups.leave()
    while not groups.is_over():
        time.sleep(0.01)
    say(f"{statistics['iterations']} iterations, served by {statistics['server']}")
    say("averages" if 0 <= model.min() == model.max() <= 3 else f"wrong: {model}")


def server_computes():
    """The rank that forms groups has left and makes no calls. It serves the others all the same."""
    told, pids = listen()
    groups = dunlin.GroupAverage(1000)
    if dunlin.rank() == 0:
        groups.leave()
        until = time.monotonic() + 60
        while not told and time.monotonic() < until:
            time.sleep(0.05)
        say("served" if told else "no rank was served")
        return
    model = np.full(1000, dunlin.rank(), np.float32)
    for _ in range(20):
        groups.average(model)
    groups.leave()
    say(f"averages, served by {groups.statistics()['server']}")
    os.kill(pids[0], signal.SIGUSR1)


def home_computes():
    """The mutex' owner rank makes no calls. The others lock and unlock all the same, and no thread spins meanwhile."""
    mutex = dunlin.Mutex("the owner rank's", owner_rank=0)
    window = dunlin.Window(np.ones(1000), [1] if dunlin.rank() == 0 else [], [0] if dunlin.rank() == 1 else [])
    told, pids = listen()
    if dunlin.rank() == 0:
        began, used = time.monotonic(), time.process_time()
        while (elapsed := time.monotonic() - began) < 2 or len(told) < 2 and elapsed < 60:
            time.sleep(0.05)
        share = (time.process_time() - used) / elapsed
        say("early, slept" if len(told) == 2 and share < 0.25 else f"told {told}, used {share:.2f} of the time")
    else:
        for _ in range(20):
            with mutex:
                pass
        if dunlin.rank() == 1:
            window.accumulate()
            window.flush()
        os.kill(pids[0], signal.SIGUSR1 if dunlin.rank() == 1 else signal.SIGUSR2)  # Equal signals may become one.
    mutex.free()
    window.free()


def crowded():
    """A call that waits for room sleeps while the other ranks are late."""
    x = np.ones(1)
    dunlin.barrier()
    if dunlin.rank() == 1:
        time.sleep(6)
    began, used = time.monotonic(), time.process_time()
    requests = [dunlin.start_all_reduce(x) for _ in range(300)]
    waited, used = time.monotonic() - began, time.process_time() - used
    if dunlin.rank() == 0:
        # A thread that polls all the time would use all the CPU time that it gets.
        say("slept" if waited > 3 and used < 0.15 * waited else f"used {used:.2f} s of {waited:.2f} s")
    say(f"sum {sum(request.wait()[0] for request in requests):.0f}")


def interrupted_lock():
    """Ctrl-C ends the wait for a mutex, and withdraws the request."""
    mutex = dunlin.Mutex("interrupted")
    if dunlin.rank() == 1:
        mutex.lock()
    dunlin.barrier()
    if dunlin.rank() == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            mutex.lock()
            say("not interrupted")
        except KeyboardInterrupt:
            say("interrupted")
    dunlin.barrier()
    if dunlin.rank() == 1:
        mutex.unlock()
        mutex.lock()  # no other rank has it or waits for it
        mutex.unlock()
        say("locked again")
    dunlin.barrier()
    with mutex:
        pass


def left_open():
    """The job ends with windows, mutexes, and operations with neighbors in progress."""
    others = [rank for rank in range(dunlin.size()) if rank != dunlin.rank()]
    window = dunlin.Window(np.ones(100), others, others)
    mutex = dunlin.Mutex("open")
    window.accumulate()
    request = dunlin.start_neighbor_average(np.ones(100000), others, others)
    gather = dunlin.start_neighbor_gather(np.ones(100000), others, others)
    tensor = window.tensor
    dunlin.shutdown()
    say(f"tensor {tensor.sum():.0f}, average {request.wait()[0]:.0f}, gathered {gather.wait()[0].sum():.0f}")
    for call in (window.put, window.update, lambda: window.p, window.free, window.flush, mutex.lock, mutex.free,
                 lambda: dunlin.neighbor_average(np.ones(1)), lambda: dunlin.check_neighbors()):
        try:
            call()
            say("no error")
        except dunlin.ClosedError:
            pass
    say("closed")


if __name__ == "__main__":
    part = sys.argv[1]
    dunlin.init(background_progress="quiet" not in sys.argv)
    globals()[part]()
