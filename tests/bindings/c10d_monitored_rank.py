"""A rank of c10d_job_test.py: c10d_monitored_rank.py PART. Monitored barriers, and errors' words."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import dunlin.c10d

from c10d_rank import group_with_timeout, say

# A call that some ranks miss ends after so many seconds. The other ranks come within them, also on a loaded host.
SHORT = 5


def attempt(call):
    """Says how long the call took, and its error."""
    began = time.monotonic()
    try:
        call()
        say(f"{time.monotonic() - began:.1f} s: passed")
    except RuntimeError as error:
        say(f"{time.monotonic() - began:.1f} s: " + " | ".join(str(error).splitlines()))


def monitored(seconds, **more):
    group = dist.distributed_c10d._get_default_group()
    return lambda: group.monitored_barrier(datetime.timedelta(seconds=seconds), **more)


def passed():
    """Ranks that come at different times pass together, again and again."""
    for i in range(3):
        time.sleep(0.2 * ((dist.get_rank() + i) % dist.get_world_size()))
        attempt(monitored(60, wait_all_ranks=i % 2 == 1))


def at_once():
    """A timeout of zero ends at once."""
    if dist.get_rank() == 0:
        attempt(monitored(0))
        attempt(monitored(0, wait_all_ranks=True))
    dist.barrier()


def some_missing():
    """Rank 0 names the first missing rank, or all, and the ranks that came learn of it. Later barriers match."""
    is_here = dist.get_rank() < 2
    dist.barrier()  # otherwise the ranks might differ by the time that they take to start
    for wait_all in (False, True):
        if is_here:
            attempt(monitored(SHORT, wait_all_ranks=wait_all))
    dist.barrier()
    if not is_here:
        for _ in range(2):
            attempt(monitored(60))  # the verdict is there
    attempt(monitored(60))


def words():
    """The words of errors that PyTorch's tests and users' handlers look for."""
    group = group_with_timeout(SHORT)
    if dist.get_rank() == 1:
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.barrier(group=group, async_op=True)
    attempt(lambda: work.wait(datetime.timedelta(seconds=0.5)))
    attempt(work.get_future().wait)
    attempt(lambda: dist.all_reduce(torch.ones(3), group=group))
    dist.barrier()
    attempt(lambda: dist.recv(torch.ones(1), 1))
    attempt(dist.barrier)


dist.init_process_group("dunlin")
globals()[sys.argv[1]]()
