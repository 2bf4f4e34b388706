"""A rank of c10d_job_test.py: c10d_rank.py PART [INIT_METHOD]"""

import datetime
import os
import signal
import sys
import threading
import time
import unittest.mock
import warnings

import torch
import torch.distributed as dist

import dunlin.c10d

warnings.simplefilter("ignore")


def say(text):
    print(text, flush=True)


def group_with_timeout(seconds):
    """A group whose calls have so many seconds.

    PyTorch gives its own barrier at the end of new_group() the same time, which ranks on a loaded host may miss.
    """
    with unittest.mock.patch.object(dist.distributed_c10d, "_store_based_barrier"):
        group = dist.new_group(timeout=datetime.timedelta(seconds=seconds))
    dist.barrier()
    return group


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Flatten(), torch.nn.Linear(8 * 49, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train(model, steps, seed, dtype=torch.float32):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        images = torch.randn((16, 1, 16, 16), generator=generator).to(dtype)
        labels = torch.randint(0, 10, (16,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def ddp():
    """Ten steps over Dunlin and over gloo, with several buckets, give the same parameters."""
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


def sharded(wrap):
    """Five steps of a sharded model over Dunlin and over gloo give the same parameters."""
    def parameters(group):
        # The buffers of batch norm don't matter here.
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                                    torch.nn.Linear(64, 3))
        model = wrap(model, group)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(5):
            x = torch.randn((16, 20), generator=generator)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1)).backward()
            optimizer.step()
        # The shards of this rank.
        return torch.cat([getattr(p, "to_local", lambda p=p: p)().detach().flatten() for p in model.parameters()])

    ours, theirs = parameters(dist.group.WORLD), parameters(dist.new_group(backend="gloo"))
    difference = ((ours - theirs).norm() / theirs.norm()).item() if ours.numel() else 0.0
    total = torch.tensor([float(ours.numel())])
    dist.all_reduce(total)
    wanted = 20 * 64 + 64 + 64 * 64 + 64 + 64 * 3 + 3
    is_all = total.item() >= wanted  # there may be padding
    is_part = dist.get_world_size() == 1 or ours.numel() < wanted
    say("same" if difference < 1e-5 and is_all and is_part else f"differ by {difference}, {total.item()} {ours.numel()}")


def fsdp():
    if torch.__version__ < "2":
        say("skipped: FullyShardedDataParallel of this PyTorch needs CUDA")
        return
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    sharded(lambda model, group: FullyShardedDataParallel(
        model, process_group=group, device_id=torch.device("cpu"), auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear})))


def fully_shard():
    try:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard as shard
    except ImportError as error:
        say(f"skipped: this PyTorch has no fully_shard: {error}")
        return

    def wrap(model, group):
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                shard(layer, mesh=mesh)
        return shard(model, mesh=mesh)

    sharded(wrap)


def gossip():
    """Ten steps with neighbors' gradients: ranks differ, but less than without any exchange."""
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


def straggler_ring():
    """Ten steps with gradients that the straggler-aware ring averages, beside the all-reduce of the process group."""
    def parameters(state, dtype):
        # Small buckets, which DistributedDataParallel rebuilds after the first step.
        model = torch.nn.parallel.DistributedDataParallel(network().to(dtype), bucket_cap_mb=0.02)
        if state is not None:
            model.register_comm_hook(state, dunlin.c10d.straggler_ring_hook)
        train(model, 10, dist.get_rank(), dtype)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        state = dunlin.c10d.StragglerRingState()
        ours, theirs = parameters(state, dtype), parameters(None, dtype)
        difference = ((ours - theirs).norm() / theirs.norm()).item()
        equal = ours.clone()
        dist.broadcast(equal, 0)
        reduces = [ring.statistics()["all_reduces"] for ring in state.rings.values()]
        is_done = difference < tolerance and torch.equal(ours, equal) and min(reduces) > 0
        say("same" if is_done else f"differ by {difference}: {reduces}")


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
    """A wait for a future, as in DistributedDataParallel, gets the error as well."""
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
    """A member is absent until calls have ended at the group's timeout."""
    group = group_with_timeout(1)
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["over"])
        dist.barrier()
        return
    for wait in (lambda work: work.wait(), lambda work: work.get_future().wait()):
        began = time.monotonic()
        try:
            wait(dist.all_reduce(torch.ones(10), group=group, async_op=True))
            say("no error")
        except RuntimeError as error:
            say(f"after {time.monotonic() - began:.1f} s: {error}")
    store.set("over", "")
    dist.barrier()  # the store ends with this rank


def interrupted():
    """Ctrl-C ends a wait and not the operation. The other rank comes when the wait is over."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        # The call is made before the signal can arrive, however late it is. Otherwise there would be none to go on.
        work = dist.barrier(async_op=True)
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            work.wait()
            say("not interrupted")
        except KeyboardInterrupt:
            say("interrupted")
        store.set("over", "")
        work.wait()
    else:
        store.wait(["over"])
        dist.barrier()
    say("barrier")


def interrupted_often():
    """Signals that arrive when an operation ends raise the exception of their handler, and no other one."""
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    signal.signal(signal.SIGALRM, ring)
    caught = 0
    for step in range(150):
        x = torch.ones(1)
        work = dist.all_reduce(x, async_op=True)
        if dist.get_rank() == 0:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.004 + 0.0001 * (step % 40))
                while not work.is_completed():
                    work.wait()
                time.sleep(0.1)
            except Alarm:
                caught += 1
            work.wait()
        else:
            time.sleep(0.006)
            work.wait()
    say("ends" if dist.get_rank() or caught == 150 else f"caught {caught}")


def crowded():
    """More calls than may be in progress time out with the group. Later ones are refused, so that none mismatches."""
    group = group_with_timeout(2)
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["over"])
    began = time.monotonic()
    works, refused = [], []
    for i in range(300):
        x = torch.full((10,), float(i))
        work = dist.all_reduce(x, group=group, async_op=True)
        works.append((i, x, work))
        if dist.get_rank() == 1 or not work.is_completed():
            continue
        try:
            work.wait()
            say("no error")
        except RuntimeError as error:
            if not refused:
                say(f"after {time.monotonic() - began:.1f} s: {error}")
            refused.append(str(error))
    if dist.get_rank() == 0:
        say(f"{len(refused) > 1 and all('was not made here' in error for error in refused[1:])}")
        store.set("over", "")
    wrong = []
    for i, x, work in works:
        try:
            work.wait()
            wrong += [i] if x[0] != 2 * i else []
        except RuntimeError:
            pass
    say(f"{len(wrong)} wrong")
    dist.barrier()


def crowded_interrupted():
    """Ctrl-C while a call waits for room. The call is made all the same, and the next ones match."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=60))
    store = dist.distributed_c10d._get_default_store()
    interrupts, works, has_come = 0, [], threading.Event()

    def interrupt():
        seen = None
        while seen != len(works):  # until the other thread waits
            seen = len(works)
            time.sleep(2)
        os.kill(os.getpid(), signal.SIGINT)
        has_come.wait(60)
        time.sleep(0.5)  # in which a call that does not wait any more would end
        store.set("interrupted", "")

    def take(number, frame):
        has_come.set()
        signal.default_int_handler(number, frame)

    if dist.get_rank() == 0:
        signal.signal(signal.SIGINT, take)
        threading.Thread(target=interrupt).start()
    else:
        store.wait(["interrupted"])
    for i in range(300):
        x = torch.full((10,), float(i))
        try:
            works.append(dist.all_reduce(x, group=group, async_op=True))
        except KeyboardInterrupt:
            interrupts += 1
    dist.all_reduce(y := torch.ones(1), group=group)
    for work in works:
        work.wait()
    say(f"{interrupts} interrupts, last {x[0]:.0f} and {y[0]:.0f}")


def released():
    """A call that is over keeps no memory, even if its work still exists."""
    import weakref

    import numpy as np

    given = np.ones(1000 * dist.get_world_size(), np.float32)
    reference = weakref.ref(given)
    y = torch.empty(1000)
    work = dist._reduce_scatter_base(y, torch.from_numpy(given), async_op=True)
    del given
    work.wait()
    until = time.monotonic() + 20
    while reference() is not None and time.monotonic() < until:
        time.sleep(0.01)
    say("released" if reference() is None and work.is_completed() else "kept")


def for_ever():
    """Timeouts beyond the range of clocks."""
    for timeout in (datetime.timedelta(days=365 * 295), datetime.timedelta.max):
        group = dist.new_group(timeout=timeout)
        x = torch.ones(1)
        if dist.get_rank() == 1:
            time.sleep(0.2)
        work = dist.all_reduce(x, group=group, async_op=True)
        work.wait(timeout)
        say(f"sum {x[0]:.0f}")


def callbacks():
    """Callbacks of futures that wait for other futures."""
    def summed(count):
        return dist.all_reduce(torch.full((count,), 1.0), async_op=True).get_future()

    def nested(depth):
        def call(future):
            return nested(depth - 1).wait() + 1 if depth else future.value()[0]

        return summed(depth + 1).then(call)

    total = nested(4).wait()
    say(f"nested {total[0] - dist.get_world_size():.0f}")


def at_once():
    """Two threads form groups, in a different order on each rank."""
    from dunlin import _c10d

    store = dist.distributed_c10d._get_default_store()
    names = ["a", "b"] if dist.get_rank() == 0 else ["b", "a"]
    sums = {}

    def form(name):
        group = _c10d.create(dist.PrefixStore(f"at once {name}", store), dist.get_rank(), dist.get_world_size(),
                             datetime.timedelta(seconds=60))
        x = torch.ones(1)
        group.allreduce([x]).wait()
        sums[name] = x.item()

    threads = [threading.Thread(target=form, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
        time.sleep(0.5)  # the other rank's first thread is forming the other group by now
    for thread in threads:
        thread.join()
    say(f"formed {sorted(sums.items())}")
    dist.barrier()


def aborted():
    """abort() ends waits of other threads and all later calls. The other rank continues."""
    group = dist.new_group()
    if dist.get_rank() == 1:
        time.sleep(3)
        dist.barrier()
        say("barrier")
        return
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
    may_end, ends = threading.Event(), []
    called = dist.all_reduce(torch.ones(10), group=group, async_op=True).get_future().then(
        lambda future: ends.append(may_end.wait(10)))

    def abort():
        backend._abort()  # doesn't wait for callbacks
        may_end.set()

    threading.Timer(1, abort).start()
    for call in (work.wait, lambda: dist.all_reduce(torch.ones(10), group=group)):
        try:
            call()
            say("no error")
        except RuntimeError as error:
            say(str(error))
    called.wait()
    say(f"callback {ends[0]}")
    dist.barrier()
    say("barrier")


def sums():
    x = torch.ones(10)
    dist.all_reduce(x)
    say(f"sum {x[0]:.0f}")
    dist.destroy_process_group()


def abandoned():
    """The program ends with a group and an operation that it never waited for."""
    dist.all_reduce(torch.ones(1000), async_op=True)
    say("ends")


def again_at_once():
    """The default group is destroyed and made again, several times, over the same port."""
    for _ in range(9):
        sums()
        dist.init_process_group("dunlin")
    sums()


def again():
    """A group is made again in the same job, with another store."""
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
