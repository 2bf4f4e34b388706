"""A rank of c10d_job_test.py, for messages that are late, in some order, or missing: c10d_receive_rank.py PART"""

import datetime
import os
import signal
import sys
import time
import warnings

import torch
import torch.distributed as dist

import dunlin.c10d

from c10d_rank import say

warnings.simplefilter("ignore")


def received(group, source, tag):
    """A message from the source (None: any). Receives until it has come."""
    y = torch.zeros(1)
    while True:
        try:
            dist.recv(y, source, group=group, tag=tag)
            return int(y.item())
        except RuntimeError as error:
            if "timed out" not in str(error):
                raise


def retried():
    """A receive that timed out takes no later message, and doesn't delay the end of the job."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    for source, tag in ((1, 3), (None, 4)):
        if dist.get_rank() == 0:
            try:
                dist.recv(torch.zeros(1), source, group=group, tag=tag)
                say("no error")
            except RuntimeError as error:
                say("timed out" if "Timed out waiting 1 s" in str(error) else error)
            dist.barrier()
            say([received(group, source, tag) for _ in range(3)])
        else:
            dist.barrier()
            for value in (1.0, 2.0, 3.0):
                dist.send(torch.tensor([value]), 0, tag=tag, group=group)
        dist.barrier()
    if dist.get_rank() == 0:
        for source, tag in ((1, 5), (None, 6)):
            try:
                dist.recv(torch.zeros(1), source, group=group, tag=tag)
            except RuntimeError:
                pass
    dist.barrier()
    dunlin.c10d.shutdown()
    say("shut down")


def withdrawn():
    """abort() withdraws receives. Later ones take their place."""
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    other = dist.new_group()
    if dist.get_rank() == 0:
        y = torch.zeros(1)
        works = [backend.recv([y], 1, 3), backend.recv_anysource([y], 4)]
        backend._abort()
        for work in works:
            try:
                work.wait()
                say("no error")
            except RuntimeError as error:
                say(error)
    dist.barrier()
    say(f"sum {sum_of(other)}")
    dunlin.c10d.shutdown()
    say("shut down")


def sum_of(group):
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    return int(x.item())


def late_exchange():
    """A late message for a collective call that has timed out is not taken for the next call."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    patient = dist.new_group()
    mine = dist.get_rank()
    dist.all_to_all([torch.zeros(1) for _ in range(2)], [torch.zeros(1) for _ in range(2)], group=group)
    for step in (1, 2):
        is_late = step == 1 and mine == 1
        if is_late:
            dist.barrier(group=patient)
        outputs = [torch.zeros(1) for _ in range(2)]
        try:
            dist.all_to_all(outputs, [torch.full((1,), float(10 * step + mine))] * 2, group=group)
            say([int(y.item()) for y in outputs])
        except RuntimeError as error:
            say("timed out" if "Timed out waiting 1 s" in str(error) else error)
        if step == 1 and not is_late:
            dist.barrier(group=patient)
        dist.barrier(group=patient)


def in_order():
    """Receives from any rank take messages in the order of their calls, in whatever order they are waited for."""
    if dist.get_rank() == 0:
        group = dist.distributed_c10d._get_default_group()
        a, b = torch.zeros(1), torch.zeros(1)
        works = [group.recv_anysource([a], 7), group.recv_anysource([b], 7)]
        dist.barrier()
        for work in reversed(works):
            work.wait()
        say([int(a.item()), int(b.item())])
    else:
        dist.barrier()
        time.sleep(0.5)  # the other rank waits for its second receive by now
        for value in (1.0, 2.0):
            dist.send(torch.tensor([value]), 0, tag=7)
    dist.barrier()


def in_turn():
    """If several ranks send, none is delayed for ever."""
    if dist.get_rank() == 0:
        for source in (1, 2, 3):
            dist.recv(torch.zeros(1), source, tag=1)  # they are connected now
        dist.barrier()
        y = torch.zeros(1)
        say([dist.recv(y, tag=7) for _ in range(9)])
    else:
        dist.send(torch.zeros(1), 0, tag=1)
        for _ in range(3):
            dist.send(torch.zeros(1), 0, tag=7)
        dist.barrier()
    dist.barrier()


def died_in_between():
    """A rank dies after it has announced a message and before it has sent it. Another one sends as well."""
    if dist.get_rank() == 0:
        for source in (1, 2):
            dist.recv(torch.zeros(1), source, tag=1)  # they are connected now
    else:
        dist.send(torch.zeros(1), 0, tag=1)
    dist.barrier()
    big = torch.full((100000,), float(dist.get_rank()))
    if dist.get_rank() == 1:
        dist.isend(big, 0, tag=3)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.barrier()
    except RuntimeError as error:
        say("dead" if "rank 1 is dead" in str(error) else error)
    if dist.get_rank() == 2:
        dist.send(big, 0, tag=3)
        # Now no source is left.
        os.kill(os.getpid(), signal.SIGKILL)
    say(f"from {dist.recv(big, tag=3)}: {big.sum().item():.0f}")
    try:
        dist.recv(big, tag=3)
        say("no error")
    except RuntimeError as error:
        say(error)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("dunlin")
    globals()[sys.argv[1]]()
