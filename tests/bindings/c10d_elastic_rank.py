"""A worker of a job of torchrun: counts steps, each with an all-reduce.

    c10d_elastic_rank.py FILE STEPS [dies]

FILE is the job's checkpoint: the number of steps made so far. With `dies`, rank 1 kills itself once, after 5 steps.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed

import dunlin.c10d  # noqa: F401

path, steps, dies = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["dies"]
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
torch.distributed.init_process_group("dunlin")
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()


def checkpoint():
    if not os.path.exists(path):
        return 0
    with open(path, encoding="utf-8") as file:
        return int(file.read())


made = torch.tensor([checkpoint()])
torch.distributed.broadcast(made, 0)
print(f"restarts {restarts}, ranks {ranks}, begins at {int(made)}", flush=True)
for step in range(int(made), steps):
    if dies and restarts == "0" and (rank, step) == (1, 5):
        while checkpoint() < 5:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    if total[0] != ranks:
        sys.exit(f"the sum is {float(total[0])}")
    if rank == 0:
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(str(step + 1))
        os.replace(path + ".new", path)
    time.sleep(0.05)
print("ends", flush=True)
torch.distributed.destroy_process_group()
