"""A rank of c10d_job_test.py: c10d_rank.py PART [INIT_METHOD]"""

import datetime
import os
import signal
import sys
import time
import warnings

import torch
import torch.distributed as dist

import dunlin.c10d

warnings.simplefilter("ignore")


def say(text):
    print(text, flush=True)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Flatten(), torch.nn.Linear(8 * 49, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train(model, steps, seed):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        images = torch.randn((16, 1, 16, 16), generator=generator)
        labels = torch.randint(0, 10, (16,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def ddp():
    """Ten steps over Dunlin and over gloo end with the same parameters; several buckets."""
    group = dist.new_group(backend="gloo")
    models = [torch.nn.parallel.DistributedDataParallel(network(), process_group=each, bucket_cap_mb=0.02)
              for each in (None, group)]
    for model in models:
        train(model, 10, dist.get_rank())
    worst = 0.0
    for ours, theirs in zip(models[0].parameters(), models[1].parameters()):
        worst = max(worst, ((ours - theirs).norm() / theirs.norm()).item())
    mine = torch.cat([p.detach().flatten() for p in models[0].parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    say("same" if worst < 1e-6 and torch.equal(mine, first) else f"differ by {worst}")


def gossip():
    """Ten steps with neighbours' gradients: ranks differ, and less than without any exchange."""
    def distance(state):
        model = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.02)
        if state is None:
            with model.no_sync():
                train(model, 10, dist.get_rank())
        else:
            model.register_comm_hook(state, dunlin.c10d.gossip_hook)
            train(model, 10, dist.get_rank())
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        mean = mine.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        return (mine - mean).norm().item()

    alone = distance(None)
    ring = distance(dunlin.c10d.GossipState(dunlin.graph.bidirectional_ring(dist.get_world_size())))
    peers = distance(dunlin.c10d.GossipState())
    complete = distance(dunlin.c10d.GossipState(dunlin.graph.complete(dist.get_world_size())))
    say("mixed" if complete < 1e-5 * alone and ring < alone and peers < alone else f"{alone} {ring} {peers} {complete}")


def killed():
    dist.all_reduce(torch.ones(3))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(100000))
    except RuntimeError as error:
        say(f"after {time.monotonic() - began:.1f} s: {error}")
    dist.destroy_process_group()
    say("destroyed")


def killed_future():
    """Who waits for a future, as DistributedDataParallel does, learns of it as well."""
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    future = dist.all_reduce(torch.ones(100000), async_op=True).get_future()
    try:
        future.wait()
        say("no error")
    except RuntimeError as error:
        say(f"future: {error}")


def late():
    """A member that stays away for longer than the group's timeout."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if dist.get_rank() == 1:
        time.sleep(4)
        return
    for wait in (lambda work: work.wait(), lambda work: work.get_future().wait()):
        began = time.monotonic()
        try:
            wait(dist.all_reduce(torch.ones(10), group=group, async_op=True))
            say("no error")
        except RuntimeError as error:
            say(f"after {time.monotonic() - began:.1f} s: {error}")


def interrupted():
    if dist.get_rank() == 0:
        import threading

        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            dist.barrier()
            say("not interrupted")
        except KeyboardInterrupt:
            say("interrupted")
    else:
        time.sleep(1.5)
        dist.barrier()
        say("barrier")


def sums():
    x = torch.ones(10)
    dist.all_reduce(x)
    say(f"sum {x[0]:.0f}")
    dist.destroy_process_group()


def abandoned():
    """Ends with a group and an operation that it never waited for."""
    dist.all_reduce(torch.ones(1000), async_op=True)
    say("ends")


def forked():
    dist.barrier()
    pid = os.fork()
    if pid == 0:
        store = dist.distributed_c10d._get_default_store()  # stays: PyTorch's own doesn't outlive a fork()
        dist.destroy_process_group()
        os._exit(0 if store is not None else 1)
    say(f"child {os.waitpid(pid, 0)[1]}")
    dist.barrier()


def left():
    """The Python package goes on with the job that the backend has left."""
    import dunlin

    dunlin.init()
    dist.all_reduce(torch.ones(1))
    dunlin.c10d.shutdown()
    try:
        dist.all_reduce(torch.ones(1))
        say("no error")
    except RuntimeError as error:
        say(str(error))
    say(f"sum {dunlin.all_reduce(torch.ones(1))[0]:.0f}")


def again():
    """A group that is made again, over another store, in the same job."""
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    dist.init_process_group("dunlin", init_method=sys.argv[2] + ".again", rank=RANK, world_size=SIZE)
    sums()


if __name__ == "__main__":
    method = {}
    if len(sys.argv) > 2:
        RANK = int(os.environ["TEST_RANK"])
        SIZE = int(os.environ["TEST_SIZE"])
        method = {"init_method": sys.argv[2], "rank": RANK, "world_size": SIZE}
    torch.set_num_threads(1)
    dist.init_process_group("dunlin", **method)
    globals()[sys.argv[1]]()
