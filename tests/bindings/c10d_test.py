"""Every call of the PyTorch backend compared with gloo, in one process: dunlin-run -n N python3 c10d_test.py, or torchrun."""

import os
import sys
import warnings

try:
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

import torch.distributed as dist

import dunlin.c10d
from c10d_checks import expect, expect_error

warnings.simplefilter("ignore")  # for calls that PyTorch will rename

INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COUNTS = [1, 7, 1000, 70001]


def sample(count, dtype, seed, small=False):
    """Random whole numbers, whose sums and products are exact; the same on all ranks for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 3 if small else 9, (count,), generator=generator).to(dtype)


def compare(name, call, *tensors):
    """Checks that `call(group, *tensors)` changes its tensors in the same way in both groups."""
    found = [tensor.clone() for tensor in tensors]
    wanted = [tensor.clone() for tensor in tensors]
    call(None, *found)
    call(GLOO, *wanted)
    for ours, theirs in zip(found, wanted):
        expect(torch.equal(ours, theirs), name, ours, theirs)


def own(count, dtype, seed=0, small=False):
    return sample(count, dtype, 100 * seed + RANK, small)


def reductions():
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    for dtype in INTEGERS + FLOATS:
        for op in ops:
            for count in COUNTS:
                x = own(count, dtype, small=op == dist.ReduceOp.PRODUCT)
                if dtype != torch.bfloat16:  # gloo has none
                    compare("all_reduce", lambda group, t, op=op: dist.all_reduce(t, op, group=group), x)
                elif op == dist.ReduceOp.SUM:
                    y = x.clone()
                    dist.all_reduce(y)
                    expect(torch.equal(y, sum(sample(count, dtype, rank) for rank in range(SIZE))), "bfloat16")
    for root in range(SIZE):
        x = own(5000, torch.float64, root)

        def reduce(group, t, root=root):
            dist.reduce(t, root, group=group)
            if RANK != root:
                t.zero_()

        compare("reduce", reduce, x)
    x = own(100, torch.float32)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    expect(torch.equal(x, sum(sample(100, torch.float32, rank) for rank in range(SIZE)) / SIZE), "avg")
    flags = torch.tensor([RANK == 0, True, False])
    anywhere, everywhere = flags.clone(), flags.clone()
    dist.all_reduce(anywhere, dist.ReduceOp.SUM)
    dist.all_reduce(everywhere, dist.ReduceOp.MIN)
    expect(anywhere.tolist() == [True, True, False], "any", anywhere)
    expect(everywhere.tolist() == [SIZE == 1, True, False], "all", everywhere)
    many = [own(count, torch.float32, count) for count in (3, 400, 1)]
    compare("all_reduce_coalesced", lambda group, *t: dist.all_reduce_coalesced(list(t), group=group), *many)
    z = torch.full((3,), complex(RANK, 1))
    dist.all_reduce(z)
    expect(z[0] == complex(sum(range(SIZE)), SIZE), "complex", z)


def bits():
    """Calls that gloo has for some types only, compared with results computed from all ranks' known inputs."""
    import functools
    import operator

    ops = {dist.ReduceOp.BAND: operator.and_, dist.ReduceOp.BOR: operator.or_, dist.ReduceOp.BXOR: operator.xor}
    for dtype in INTEGERS + [torch.int16, torch.bool]:
        for op, combine in ops.items():
            for count in COUNTS:
                inputs = [sample(count, dtype, rank) for rank in range(SIZE)]
                wanted = functools.reduce(combine, inputs)
                x = inputs[RANK].clone()
                dist.all_reduce(x, op)
                expect(torch.equal(x, wanted), "all_reduce", op, dtype, count)
                root = count % SIZE
                x = inputs[RANK].clone()
                dist.reduce(x, root, op)
                expect(torch.equal(x, wanted if RANK == root else inputs[RANK]), "reduce", op, dtype, count)
                whole = [sample(SIZE * count, dtype, 7 + rank) for rank in range(SIZE)]
                wanted = functools.reduce(combine, whole)[RANK * count:(RANK + 1) * count]
                y = torch.empty(count, dtype=dtype)
                dist._reduce_scatter_base(y, whole[RANK].clone(), op)
                expect(torch.equal(y, wanted), "reduce_scatter", op, dtype, count)
                y.zero_()
                dist.reduce_scatter(y, [part.clone() for part in whole[RANK].split(count)], op)
                expect(torch.equal(y, wanted), "reduce_scatter of a list", op, dtype, count)
    pair = [torch.tensor([[1 << RANK]]), torch.tensor([RANK, 1])]
    dist.all_reduce_coalesced(pair, dist.ReduceOp.BOR)
    wanted = functools.reduce(operator.or_, range(SIZE))
    expect(pair[0].item() == (1 << SIZE) - 1 and pair[1].tolist() == [wanted, 1], "coalesced", pair)


def factors():
    """PREMUL_SUM, which FullyShardedDataParallel scales gradients with."""
    tensor = torch.tensor([0.25])
    for factor in (0.25, [tensor] if VERSION < (2, 0) else tensor):
        for dtype in (torch.float16, torch.float32, torch.float64):
            op = dist._make_nccl_premul_sum(factor)
            inputs = [sample(2000, dtype, rank) for rank in range(SIZE)]
            wanted = 0.25 * sum(inputs)
            x = inputs[RANK].clone()
            dist.all_reduce(x, op)
            expect(torch.equal(x, wanted), "all_reduce", dtype)
            x = inputs[RANK].clone()
            dist.reduce(x, SIZE - 1, op)
            expect(torch.equal(x, wanted if RANK == SIZE - 1 else inputs[RANK]), "reduce", dtype)
            whole = [sample(SIZE * 500, dtype, rank) for rank in range(SIZE)]
            y = torch.empty(500, dtype=dtype)
            before = whole[RANK].clone()
            dist._reduce_scatter_base(y, before, op)
            expect(torch.equal(y, 0.25 * sum(whole)[RANK * 500:(RANK + 1) * 500]), "reduce_scatter", dtype)
            expect(torch.equal(before, whole[RANK]), "input")
    expect_error("floating-point", lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), op))


def moves():
    for dtype in INTEGERS + FLOATS + [torch.bool, torch.int16]:
        reference = dtype in (torch.bool, torch.int16, torch.bfloat16)
        for count in COUNTS:
            x = own(count, dtype)
            all_of_them = [sample(count, dtype, rank) for rank in range(SIZE)]
            y = x.clone()
            dist.broadcast(y, SIZE - 1)
            expect(torch.equal(y, all_of_them[-1]), "broadcast", dtype)
            lists = [torch.empty_like(x) for _ in range(SIZE)]
            dist.all_gather(lists, x)
            expect(all(map(torch.equal, lists, all_of_them)), "all_gather", dtype)
            rows = torch.empty((SIZE, count), dtype=dtype)
            dist.all_gather(list(rows), x)  # without gaps in memory
            expect(torch.equal(rows, torch.stack(all_of_them)), "all_gather into rows", dtype)
            for first in range(min(2, SIZE)):  # the input is an output, also another rank's
                rows[first] = x
                dist.all_gather(list(rows), rows[first])
                expect(torch.equal(rows, torch.stack(all_of_them)), "all_gather of an output", dtype)
            flat = torch.empty(SIZE * count, dtype=dtype)
            dist._all_gather_base(flat, x)
            expect(torch.equal(flat, torch.cat(all_of_them)), "_all_gather_base", dtype)
            if not reference:
                compare("broadcast", lambda group, t: dist.broadcast(t, 0, group=group), x)
            for root in range(SIZE):
                into = [torch.empty_like(x) for _ in range(SIZE)] if RANK == root else None
                dist.gather(x, into, root)
                expect(RANK != root or all(map(torch.equal, into, all_of_them)), "gather", dtype)
                y = torch.empty_like(x)
                dist.scatter(y, all_of_them if RANK == root else None, root)
                expect(torch.equal(y, x), "scatter", dtype)
                parts = [part.clone() for part in all_of_them]
                dist.scatter(parts[0], parts if RANK == root else None, root)
                expect(torch.equal(parts[0], x), "scatter to an input", dtype)
    work = dist.distributed_c10d._get_default_group().allgather_coalesced(
        [[torch.empty(2), torch.empty(3)] for _ in range(SIZE)], [torch.full((2,), float(RANK)), torch.ones(3)])
    work.wait()
    things = [None] * SIZE
    dist.all_gather_object(things, {"rank": RANK, "text": "x" * (10 * RANK)})
    expect([thing["rank"] for thing in things] == list(range(SIZE)), "objects", things)
    named = [RANK, "a"]
    dist.broadcast_object_list(named, SIZE - 1)
    expect(named == [SIZE - 1, "a"], "object list", named)


def scattered_reductions():
    for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
        for count in COUNTS:
            whole = [sample(SIZE * count, dtype, 7 + rank) for rank in range(SIZE)]
            wanted = sum(whole)[RANK * count:(RANK + 1) * count]
            y = torch.empty(count, dtype=dtype)
            dist.reduce_scatter(y, [part.clone() for part in whole[RANK].split(count)])
            expect(torch.equal(y, wanted), "reduce_scatter", dtype, count)
            y.zero_()
            dist._reduce_scatter_base(y, whole[RANK].clone())
            expect(torch.equal(y, wanted), "_reduce_scatter_base", dtype, count)
            for result in range(min(2, SIZE)):
                parts = list(whole[RANK].clone().split(count))
                dist.reduce_scatter(parts[result], parts)
                expect(torch.equal(parts[result], wanted), "reduce_scatter to an input", dtype, count)


def all_to_alls():
    x = torch.arange(SIZE * 6).reshape(SIZE * 2, 3) + 1000 * RANK
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    wanted = torch.cat([torch.arange(SIZE * 6).reshape(SIZE * 2, 3)[2 * RANK:2 * RANK + 2] + 1000 * rank
                        for rank in range(SIZE)])
    expect(torch.equal(y, wanted), "all_to_all_single", y)
    # Rank r sends (r + s) % 3 rows to s, so some ranks get none.
    sizes = [[(r + s) % 3 for s in range(SIZE)] for r in range(SIZE)]
    x = torch.cat([torch.full((rows, 2), 10.0 * RANK + s) for s, rows in enumerate(sizes[RANK])])
    takes = [sizes[s][RANK] for s in range(SIZE)]
    y = torch.empty(sum(takes), 2)
    dist.all_to_all_single(y, x, takes, sizes[RANK])
    expect(torch.equal(y, torch.cat([torch.full((rows, 2), 10.0 * s + RANK) for s, rows in enumerate(takes)])),
           "uneven all_to_all_single", y)
    outputs = [torch.empty(3 + rank) for rank in range(SIZE)]
    dist.all_to_all(outputs, [torch.full((3 + RANK,), 10.0 * RANK + s) for s in range(SIZE)])
    expect(all((part == 10.0 * s + RANK).all() for s, part in enumerate(outputs)), "all_to_all", outputs)


def messages():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    if SIZE == 1:
        return
    for count in (1, 5000, 1 << 20):
        # Two tags, received in reverse order.
        works = [dist.isend(torch.full((count,), RANK + 0.5 * tag), right, tag=tag) for tag in (0, 1)]
        for tag in (1, 0):
            y = torch.empty(count)
            dist.recv(y, left, tag=tag)
            expect((y == left + 0.5 * tag).all(), "recv", count, tag)
        for work in works:
            work.wait()
    operations = [dist.P2POp(dist.isend, torch.tensor([RANK]), right), dist.P2POp(dist.irecv, y := torch.tensor([0]), left)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    expect(y.item() == left, "batch", y)
    if RANK == 0:
        dist.send(torch.ones(4), 1, tag=9)
    elif RANK == 1:
        expect_error("16 bytes", lambda: dist.recv(torch.ones(5), 0, tag=9))
    from_anybody()


def from_anybody():
    # Small messages come with their announcement, large ones after it.
    for tag, count in ((14, 1), (15, 300000)):
        if RANK == 0:
            seen = []
            for _ in range(3 * (SIZE - 1)):
                y = torch.empty(count)
                seen.append(dist.recv(y, tag=tag))
                expect((y == 10 * seen[-1] + seen.count(seen[-1])).all(), "from anybody", seen, y[0])
            expect(sorted(seen) == sorted(3 * list(range(1, SIZE))), "from all ranks", seen)
        else:
            for i in range(3):
                dist.send(torch.full((count,), 10.0 * RANK + i + 1), 0, tag=tag)
    # Received before any rank has sent; then the same tag from a given rank.
    if RANK == 0:
        y, z = torch.empty(1), torch.empty(1)
        work = dist.distributed_c10d._get_default_group().recv_anysource([y], 5)
        dist.broadcast(torch.ones(1), 0)
        work.wait()
        expect(work._source_rank() == SIZE - 1 and y.item() == 7, "early", y)
        dist.recv(z, SIZE - 1, tag=5)
        expect(z.item() == 8, "by name", z)
    else:
        dist.broadcast(torch.ones(1), 0)
        if RANK == SIZE - 1:
            dist.send(torch.tensor([7.0]), 0, tag=5)
            dist.send(torch.tensor([8.0]), 0, tag=5)


def futures():
    x = torch.full((1000,), 1.0)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda future: future.value()[0] * 2)
    expect((doubled.wait() == 2 * SIZE).all(), "future")
    works = [dist.all_reduce(torch.full((100 * i,), float(i)), async_op=True) for i in range(1, 50)]
    for i, work in reversed(list(enumerate(works, 1))):
        work.wait()
        expect(work.is_completed() and work.is_success() and (work.result()[0] == i * SIZE).all(), "work", i)
    work = dist.barrier(async_op=True)
    while not work.is_completed():
        pass


def groups():
    for members in ([0], list(range(0, SIZE, 2)), list(range(SIZE))):
        group = dist.new_group(members)
        if RANK in members:
            x = torch.full((10,), float(RANK))
            dist.all_reduce(x, group=group)
            expect((x == sum(members)).all(), "group", members, x)
            y = torch.full((1,), RANK)
            dist.broadcast(y, members[-1], group=group)
            expect(y.item() == members[-1], "root in group", members)
            dist.barrier(group)
            dist.destroy_process_group(group)
    if SIZE > 1:  # an operation in progress, whose end the members need before they come
        x = torch.ones(1 << 18)
        work = dist.all_reduce(x, async_op=True)
        if RANK == 0:
            work.wait()
        dist.new_group([0, SIZE - 1])
        work.wait()
        expect((x == SIZE).all(), "in progress")


def coalesced():
    """Coalesced calls of several functions, from 2.1 on."""
    if VERSION < (2, 1):
        return
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    x, y, z = torch.full((3,), float(RANK)), torch.ones(5), torch.empty(2)
    group = dist.distributed_c10d._get_default_group()
    group._start_coalescing(torch.device("cpu"))
    group.allreduce([x])
    dist.broadcast(y, 0, async_op=True)
    if SIZE > 1:
        group.send([torch.full((2,), float(RANK))], right, 3)
        group.recv([z], left, 3)
    work = group._end_coalescing(torch.device("cpu"))
    work.wait()
    expect(work.is_completed() and work.is_success(), "joined")
    expect(x[0] == sum(range(SIZE)) and (SIZE == 1 or z[0] == left), "coalesced", x, z)
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for tensor in (x, y):
            dist.all_reduce(tensor)
    manager.wait()
    expect(x[0] == SIZE * sum(range(SIZE)) and y[0] == SIZE, "manager", x, y)
    expect_error("without startCoalescing", lambda: group._end_coalescing(torch.device("cpu")))


def splits():
    """Groups that members of a group split off, from 2.9 on."""
    group = dist.distributed_c10d._get_default_group()
    if not hasattr(group, "split_group"):
        return
    evens, odds = list(range(0, SIZE, 2)), list(range(1, SIZE, 2))
    part = group.split_group(odds if RANK % 2 else evens)
    x = torch.full((10,), float(RANK))
    part.allreduce([x]).wait()
    expect(x[0] == sum(odds if RANK % 2 else evens), "split", x)
    expect(part.size() == len(odds if RANK % 2 else evens), "size")


def mistakes():
    expect_error("bitwise", lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.BXOR))
    expect_error("can be moved, not reduced", lambda: dist.all_reduce(torch.ones(4, dtype=torch.int16)))
    expect_error("sparse", lambda: dist.broadcast(torch.eye(2).to_sparse(), 0))
    expect_error("elements", lambda: dist._all_gather_base(torch.empty(3 * SIZE), torch.empty(2)))
    dist.all_reduce(torch.ones(0))
    dist.all_reduce(torch.ones(1))  # calls still match


def main():
    for part in (reductions, bits, factors, coalesced, splits, moves, scattered_reductions, all_to_alls, messages, futures, groups, mistakes):
        part()
    dist.barrier()
    # The Python package shares the job.
    import dunlin

    dunlin.init()
    expect(dunlin.rank() == RANK and dunlin.size() == SIZE, "shared")
    expect(dunlin.all_reduce(torch.ones(3))[0] == SIZE, "shared all_reduce")
    dunlin.shutdown()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    print("ok", flush=True)


method = {} if len(sys.argv) < 2 else {"init_method": sys.argv[1], "rank": int(os.environ["RANK"]),
                                       "world_size": int(os.environ["WORLD_SIZE"])}
dist.init_process_group("dunlin", **method)
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GLOO = dist.new_group(backend="gloo")
main()
