"""A rank of c10d_job_test.py, for the start and the end of groups and jobs: c10d_ends_rank.py PART"""

import datetime
import os
import signal
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import torch
import torch.distributed as dist

import dunlin.c10d
from dunlin import _c10d

from c10d_rank import say

warnings.simplefilter("ignore")
MINUTE = datetime.timedelta(seconds=60)


def stores(*names):
    """A store as PyTorch hands one to each group."""
    store = dist.distributed_c10d._get_default_store()
    return [dist.PrefixStore(name, store) for name in names]


def form_and_say(store, size):
    """Forms a group, and prints the result."""
    try:
        _c10d.create(store, dist.get_rank(), size, MINUTE)
        say("formed")
    except KeyboardInterrupt:
        say("interrupted")
    except RuntimeError as error:
        say(str(error).splitlines()[0])


def gave_up():
    """A member gives up while a group meets. Members that come later get an error that names it."""
    first, second = stores("a", "b")
    _c10d.create(first, dist.get_rank(), 2, MINUTE)
    if dist.get_rank() == 0:
        # The store looks as if the other rank had come, but not to the last meeting.
        second.set("dunlin/0/claim/1", first.get("dunlin/0/claim/1"))
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        dist.barrier()
    form_and_say(second, 2)
    if dist.get_rank() == 0:
        dist.barrier()
    dist.barrier()


def gave_up_late():
    """A member gives up while the members connect. Those that wait for it get an error that names it."""
    first, second = stores("a", "b")
    _c10d.create(first, dist.get_rank(), 3, MINUTE)
    if dist.get_rank() == 2:
        # The store looks as if this rank had come to the meeting as well, and then stopped.
        second.set("dunlin/0/claim/2", first.get("dunlin/0/claim/2"))
        second.add("dunlin/0/arrived", 1)
        dist.barrier()
        return
    if dist.get_rank() == 0:
        def interrupt():
            while second.add("dunlin/0/arrived", 0) < 3:  # wait() would block the other thread
                time.sleep(0.01)
            time.sleep(0.5)  # all members have polled for the last time
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
    form_and_say(second, 3)
    dist.barrier()


class ObservedStore(dist.Store):
    """Another store, which calls `look(key)` before it checks whether a key exists."""

    def __init__(self, store, look):
        super().__init__()
        self.store, self.look = store, look

    def set(self, key, value):
        self.store.set(key, value)

    def get(self, key):
        return self.store.get(key)

    def add(self, key, value):
        return self.store.add(key, value)

    def check(self, keys):
        self.look(keys[0])
        # PyTorch 1.13 has no other way to check for a key without waiting for it.
        return self.store.compare_set(keys[0], "nothing", "") != b"nothing"


def failed_within():
    """A member whose store fails tells the others, like one that gives up."""
    first, second = stores("a", "b")
    _c10d.create(first, dist.get_rank(), 2, MINUTE)

    def fail(key):
        if key == "dunlin/0/claim/1":
            raise RuntimeError("the store is gone")

    if dist.get_rank() == 0:
        second = ObservedStore(second, fail)
    form_and_say(second, 2)
    dist.barrier()


def slow_store():
    """While a member that forms a group polls the store, other calls continue. It doesn't fail if the store fails."""
    first, second = stores("a", "b")
    _c10d.create(first, dist.get_rank(), 2, MINUTE)
    if dist.get_rank() == 1:
        # The store looks as if this rank had come to the meeting, and not connected yet.
        second.set("dunlin/0/claim/1", first.get("dunlin/0/claim/1"))
        second.add("dunlin/0/arrived", 1)
        while second.add("asked", 0) == 0:
            time.sleep(0.01)
        try:
            dist.all_reduce(torch.ones(10))
        except RuntimeError as error:
            say(str(error))
        _c10d.create(second, 1, 2, MINUTE)
        say("formed")
        dist.barrier()
        return
    work = dist.all_reduce(torch.ones(10), async_op=True)
    future = work.get_future()
    looks = []

    def look(key):
        if key != "dunlin/0/gave up" or second.add("dunlin/0/arrived", 0) < 2:
            return
        looks.append(key)
        if len(looks) == 2:  # the first check ended the meeting
            second.add("asked", 1)
            until = time.monotonic() + 10
            while not future.done() and time.monotonic() < until:
                time.sleep(0.01)
            say("done" if future.done() else "not moved on")
        if len(looks) >= 2:
            raise RuntimeError("the store is gone")

    _c10d.create(ObservedStore(second, look), 0, 2, MINUTE)
    say("formed")
    dist.barrier()


def shut_down_twice():
    """Finalizers that the end of the job runs may call anything, for example shutdown() again."""
    dunlin.init()
    dist.barrier()
    (store,) = stores("end")
    if dist.get_rank() == 0:  # whose shutdown() would wait for the other one, which needs its coordinator
        while store.add("ended", 0) == 0:
            time.sleep(0.01)
        return
    given = np.ones(1000, np.float32)
    ends = []

    def end():
        dunlin.shutdown()
        ends.append(dunlin.is_initialized())

    weakref.finalize(given, end)
    work = dist.all_reduce(torch.from_numpy(given), async_op=True)
    del given, work
    dunlin.c10d.shutdown(0)
    say(f"before {ends}")
    dunlin._dunlin.shutdown(False, 0)  # alone
    say(f"after {ends}")
    store.add("ended", 1)


def leaves_while_forming():
    """shutdown() does not wait for a thread that forms a group with missing members."""
    first, second = stores("a", "b")
    _c10d.create(first, dist.get_rank(), dist.get_world_size(), MINUTE)
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(4)
        return
    # The store looks as if the other rank had come, but not to the last meeting.
    second.set("dunlin/0/claim/1", first.get("dunlin/0/claim/1"))
    told = []

    def form():
        try:
            _c10d.create(second, 0, 2, datetime.timedelta(seconds=600))
        except RuntimeError as error:
            told.append(str(error))

    thread = threading.Thread(target=form)
    thread.start()
    time.sleep(1)
    try:
        dunlin.c10d.shutdown(1)
    except RuntimeError:
        pass  # the other rank isn't here yet
    thread.join()
    say(f"shut down; {told[0]}")


def outlived():
    """The memory of calls in progress when the backend leaves the job is released at their end, without further calls."""
    dunlin.init()  # the job continues
    group = dist.new_group()
    if dist.get_rank() == 1:
        while "left" not in os.listdir(sys.argv[2]):
            time.sleep(0.01)
        work = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
        work.wait()
        dunlin.start_barrier().wait(timeout=60)
        return
    given = np.ones(1000, np.float32)
    reference = weakref.ref(given)
    work = dist.all_reduce(torch.from_numpy(given), group=group, async_op=True)
    del given
    dunlin.c10d.shutdown()
    try:
        work.wait()
        say("no error")
    except RuntimeError as error:
        say(str(error))
    del work
    say("kept" if reference() is not None else "released too early")
    open(os.path.join(sys.argv[2], "left"), "w").close()
    until = time.monotonic() + 30
    while reference() is not None and time.monotonic() < until:
        time.sleep(0.01)
    say("released" if reference() is None else "leaked")
    dunlin.start_barrier().wait(timeout=60)


def refuses(call):
    try:
        call()
    except RuntimeError as error:
        return "the parent process" in str(error)
    return False


def forked():
    """In a child, groups, calls in progress and their futures give errors, and none hangs."""
    class Bucket:
        def __init__(self):
            self.gradients = torch.ones(10)

        def buffer(self):
            return self.gradients

        def index(self):
            return 0

        def is_last(self):
            return True

        def parameters(self):
            return []

    state = dunlin.c10d.GossipState()
    (store,) = stores("forked")
    if dist.get_rank() == 1:
        store.wait(["child ended"])
    works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(2)]
    first, second = (work.get_future() for work in works)
    # A callback that waits for another future that would not end in the child.
    chained = first.then(lambda _: second.wait())
    futures = [first, second, chained, dunlin.c10d.gossip_hook(state, Bucket())]
    if dist.get_rank() == 0:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)  # kills the child if it hangs
            calls = [works[0].wait, works[0].is_completed, lambda: dist.all_reduce(torch.ones(1)),
                     lambda: dunlin.c10d.gossip_hook(state, Bucket()), *(future.wait for future in futures)]
            is_refused = [refuses(call) for call in calls]
            dist.destroy_process_group()
            # The store is kept: PyTorch's stores don't survive a fork().
            os._exit(0 if store is not None and all(is_refused) else 1)
        say(f"child {os.waitpid(pid, 0)[1]}")
        store.set("child ended", "")
    for future in futures:
        future.wait()
    say(f"sum {chained.value()[0][0]:.0f}")
    dist.barrier()


def left():
    """The Python package continues with the job that the backend has left."""
    dunlin.init()
    dist.all_reduce(torch.ones(1))
    dunlin.c10d.shutdown()
    try:
        dist.all_reduce(torch.ones(1))
        say("no error")
    except RuntimeError as error:
        say(str(error))
    say(f"sum {dunlin.all_reduce(torch.ones(1))[0]:.0f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("dunlin")
    globals()[sys.argv[1]]()
