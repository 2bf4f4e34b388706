"""What the ranks of survivors_test.py share: the deaths that the command line names, and how ranks hear of them."""

import os
import signal
import sys
import time

import dunlin

CASE = sys.argv[1]
DEATHS = {int(rank): int(step) for rank, step in (each.split(":") for each in sys.argv[2:])}
RANKS = 4
STEPS = 14


def die_before(step):
    if DEATHS.get(dunlin.rank()) == step:
        os.kill(os.getpid(), signal.SIGKILL)


def living(step):
    """The ranks that take part in this step."""
    return [rank for rank in range(RANKS) if DEATHS.get(rank, STEPS + 1) > step]


def await_news(step):
    """Waits until this rank knows of all deaths before the step. Others may be at their end already, and leave."""
    while not set(dunlin.members()) <= set(living(step)):
        time.sleep(0.001)
