"""Tensors that aren't contiguous, sparse tensors, lists of unequal sizes, and the profiler's events of the PyTorch
backend, in one process: dunlin-run -n N python3 c10d_tensors_test.py"""

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

SHAPE = (2, 3, 4, 5)


def plain(rank, shape=SHAPE, seed=0):
    """The tensor of a rank, contiguous: whole numbers."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(-9, 9, shape, generator=generator).float()


def channels_last(tensor):
    return tensor.to(memory_format=torch.channels_last)


def transposed(tensor):
    """A tensor of the same elements whose memory has them in the reverse order of the dimensions."""
    dimensions = list(reversed(range(tensor.dim())))
    return tensor.permute(dimensions).contiguous().permute(dimensions)


def strided(tensor):
    """A view of every second element of a larger tensor, which is not dense."""
    view = torch.full((*tensor.shape, 2), -99.0, dtype=tensor.dtype)[..., 0]
    view.copy_(tensor)
    return view


def mixed(tensor):
    """Another layout on every rank."""
    return (channels_last, transposed, strided, torch.clone)[RANK % 4](tensor)


def layouts():
    for make in (channels_last, transposed, strided, mixed):
        all_of_them = [plain(rank) for rank in range(SIZE)]
        total = sum(all_of_them)

        def own(seed=0, make=make):
            x = make(plain(RANK, seed=seed))
            expect(make is mixed or not x.is_contiguous(), "layout", make)
            return x

        def blank(make=make):
            return make(torch.zeros(SHAPE))

        x = own()
        strides = x.stride()
        dist.all_reduce(x)
        expect(torch.equal(x, total) and x.stride() == strides, "all_reduce", make)
        x = own()
        work = dist.all_reduce(x, async_op=True)
        expect(torch.equal(work.get_future().wait()[0], total), "future", make)
        expect(torch.equal(x, total), "future's tensor", make)
        bits = make(plain(RANK)).long() if make is not strided else strided(plain(RANK).long())
        dist.all_reduce(bits, dist.ReduceOp.BXOR)
        wanted = plain(0).long()
        for rank in range(1, SIZE):
            wanted ^= plain(rank).long()
        expect(torch.equal(bits, wanted), "bits", make)
        many = [own(), own(1)]
        dist.all_reduce_coalesced(many)
        expect(torch.equal(many[0], total), "all_reduce_coalesced", make)
        expect(torch.equal(many[1], sum(plain(rank, seed=1) for rank in range(SIZE))), "all_reduce_coalesced", make)
        for root in range(SIZE):
            x = own()
            dist.broadcast(x, root)
            expect(torch.equal(x, all_of_them[root]), "broadcast", make)
            x = own()
            dist.reduce(x, root)
            expect(torch.equal(x, total if RANK == root else all_of_them[RANK]), "reduce", make)
            into = [blank() for _ in range(SIZE)] if RANK == root else None
            dist.gather(own(), into, root)
            expect(RANK != root or all(map(torch.equal, into, all_of_them)), "gather", make)
            y = blank()
            dist.scatter(y, [make(each) for each in all_of_them] if RANK == root else None, root)
            expect(torch.equal(y, all_of_them[RANK]), "scatter", make)
        lists = [blank() for _ in range(SIZE)]
        dist.all_gather(lists, own())
        expect(all(map(torch.equal, lists, all_of_them)), "all_gather", make)
        y = blank()
        dist.reduce_scatter(y, [make(plain(RANK, seed=rank)) for rank in range(SIZE)])
        expect(torch.equal(y, sum(plain(rank, seed=RANK) for rank in range(SIZE))), "reduce_scatter", make)
        whole = make(torch.zeros((SIZE * SHAPE[0], *SHAPE[1:])))
        dist._all_gather_base(whole, own())
        expect(torch.equal(whole, torch.cat(all_of_them)), "_all_gather_base", make)
        y = blank()
        dist._reduce_scatter_base(y, make(torch.cat([plain(RANK, seed=rank) for rank in range(SIZE)])))
        expect(torch.equal(y, sum(plain(rank, seed=RANK) for rank in range(SIZE))), "_reduce_scatter_base", make)
        parts = [blank() for _ in range(SIZE)]
        dist.all_to_all(parts, [make(plain(RANK, seed=rank)) for rank in range(SIZE)])
        expect(all(torch.equal(part, plain(rank, seed=RANK)) for rank, part in enumerate(parts)), "all_to_all", make)
        for splits in (None, [SHAPE[0]] * SIZE):
            whole = make(torch.zeros((SIZE * SHAPE[0], *SHAPE[1:])))
            dist.all_to_all_single(whole, make(torch.cat([plain(RANK, seed=rank) for rank in range(SIZE)])), splits, splits)
            expect(torch.equal(whole, torch.cat([plain(rank, seed=RANK) for rank in range(SIZE)])), "all_to_all_single",
                   make)
        if SIZE > 1:
            work = dist.isend(own(), (RANK + 1) % SIZE)
            y = blank()
            dist.recv(y, (RANK - 1) % SIZE)
            work.wait()
            expect(torch.equal(y, all_of_them[(RANK - 1) % SIZE]), "recv", make)
    gaps = strided(torch.ones(6))
    dist.all_reduce(gaps)
    expect((gaps._base[:, 1] == -99).all(), "elements beside the view", gaps._base)
    expect_error("share memory", lambda: dist.all_reduce(torch.ones(1).expand(5)))


def zero_redundancy():
    """The optimizer broadcasts the parameters, which have the layout of the model."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def train(wrap):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3)).to(
            memory_format=torch.channels_last)
        expect(not model[0].weight.is_contiguous(), "channels last")
        optimizer = wrap(model.parameters())
        for step in range(3):
            optimizer.zero_grad()
            model(plain(step, (2, 3, 8, 8))).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    shared = train(lambda p: ZeroRedundancyOptimizer(p, optimizer_class=torch.optim.SGD, lr=0.001))
    alone = train(lambda p: torch.optim.SGD(p, lr=0.001))
    expect(torch.equal(shared, alone), "ZeroRedundancyOptimizer", (shared - alone).abs().max())


def sparse():
    def own(rank, count=5, dtype=torch.float32):
        """Elements at indices that differ between ranks and repeat within one; `count` differs as well."""
        count += rank
        generator = torch.Generator().manual_seed(rank)
        indices = torch.stack([torch.randint(0, 6, (count,), generator=generator),
                               torch.randint(0, 3, (count,), generator=generator)])
        values = torch.randint(-9, 9, (count, 2), generator=generator).to(dtype)
        return torch.sparse_coo_tensor(indices, values, (6, 3, 2))

    for dtype in (torch.float32, torch.float64, torch.int64):
        wanted = sum(own(rank, dtype=dtype).to_dense() for rank in range(SIZE))
        x = own(RANK, dtype=dtype)
        dist.all_reduce(x)
        expect(x.is_sparse and torch.equal(x.to_dense(), wanted), "sparse", dtype)
        theirs = own(RANK, dtype=dtype)
        dist.all_reduce(theirs, group=GLOO)
        expect(x.is_coalesced() == theirs.is_coalesced() and torch.equal(x.coalesce().indices(), theirs.coalesce().indices()),
               "as gloo", dtype)
    # Nothing but a result: a rank without elements, and none at all.
    x = own(RANK) if RANK == 0 else torch.sparse_coo_tensor(torch.empty((2, 0), dtype=torch.int64), torch.empty(0, 2),
                                                            (6, 3, 2))
    result = dist.all_reduce(x, async_op=True).get_future().wait()[0]
    expect(torch.equal(result.to_dense(), own(0).to_dense()), "one rank's")
    x = torch.sparse_coo_tensor(size=(4, 4))
    dist.all_reduce(x)
    expect(x._nnz() == 0, "empty")
    expect_error("only", lambda: dist.all_reduce(own(RANK), dist.ReduceOp.MAX))
    expect_error("use to_dense()", lambda: dist.broadcast(own(RANK), 0))
    if SIZE > 1:
        other = torch.sparse_coo_tensor([[0]], [1.0], (2 + RANK,))
        expect_error("Sparse dimensions do not match", lambda: dist.all_reduce(other))
        # Rank 1 has an index beyond the size, which PyTorch doesn't notice there.
        beyond = torch._sparse_coo_tensor_unsafe(torch.tensor([[100 if RANK == 1 else 1]]), torch.ones(1), (3,))
        if RANK == 1:
            dist.all_reduce(beyond)
        else:
            expect_error("rank 1 has sent indices that do not lie within", lambda: dist.all_reduce(beyond))
    # Gradients of an embedding.
    torch.manual_seed(5)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(10, 3, sparse=True))
    model(torch.tensor([RANK, 9])).sum().backward()
    wanted = torch.zeros(10, 3)
    for rank in range(SIZE):
        wanted[rank] += 1
        wanted[9] += 1
    expect(torch.allclose(model.module.weight.grad.to_dense(), wanted / SIZE), "embedding", model.module.weight.grad)


def unequal_lists():
    shapes = [(rank % 3, 2) for rank in range(1, SIZE + 1)]  # one has no elements
    for dtype in (torch.float32, torch.int64, torch.bool):
        parts = [plain(rank, shape).to(dtype) for rank, shape in enumerate(shapes)]
        lists = [torch.zeros(shape, dtype=dtype) for shape in shapes]
        dist.all_gather(lists, parts[RANK])
        expect(all(map(torch.equal, lists, parts)), "all_gather", dtype, lists)
    ops = {dist.ReduceOp.SUM: lambda all_of_them: sum(all_of_them[1:], all_of_them[0]),
           dist.ReduceOp.MAX: lambda all_of_them: torch.stack(all_of_them).amax(0),
           dist.ReduceOp.AVG: lambda all_of_them: sum(all_of_them[1:], all_of_them[0]) / SIZE}
    for op, combine in ops.items():
        y = torch.zeros(shapes[RANK])
        inputs = [plain(RANK, shape, seed=rank) for rank, shape in enumerate(shapes)]
        before = [each.clone() for each in inputs]
        dist.reduce_scatter(y, inputs, op)
        wanted = combine([plain(rank, shapes[RANK], seed=RANK) for rank in range(SIZE)])
        expect(torch.allclose(y, wanted), "reduce_scatter", op, y, wanted)
        expect(all(map(torch.equal, inputs, before)), "inputs", op)
    y = torch.zeros(shapes[RANK], dtype=torch.int64)
    dist.reduce_scatter(y, [plain(RANK, shape, seed=rank).long() for rank, shape in enumerate(shapes)], dist.ReduceOp.BXOR)
    wanted = torch.zeros_like(y)
    for rank in range(SIZE):
        wanted ^= plain(rank, shapes[RANK], seed=RANK).long()
    expect(torch.equal(y, wanted), "bits", y, wanted)
    if SIZE > 1:
        lists = [torch.zeros(rank + 1) for rank in range(SIZE)]
        expect_error("elements", lambda: dist.all_gather(lists, torch.zeros(SIZE + 1)))
        expect_error("elements", lambda: dist.reduce_scatter(torch.zeros(SIZE + 1), lists))
    dist.all_reduce(torch.ones(1))  # calls still match


def exchanges_in_place():
    """Inputs that are outputs as well are copied before they are overwritten."""
    for count in (1, 300_000):
        def filled():
            return torch.cat([torch.full((count,), float(RANK * SIZE + to)) for to in range(SIZE)])

        wanted = torch.cat([torch.full((count,), float(source * SIZE + RANK)) for source in range(SIZE)])
        for splits in (None, SIZE * [count]):
            x = filled()
            dist.all_to_all_single(x, x, splits, splits)
            expect(torch.equal(x, wanted), "all_to_all_single", splits, x)
        for shift in (0, 1):
            parts = list(filled().split(count))
            outputs = parts[shift:] + parts[:shift]
            dist.all_to_all(outputs, parts)
            expect(torch.equal(torch.cat(outputs), wanted), "all_to_all", shift, outputs)


def averages():
    """Averages of small integers are rounded once: 1/3 has no finite binary fraction."""
    total = sum(plain(rank, (999,), seed=1) for rank in range(SIZE))
    x = plain(RANK, (999,), seed=1)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    expect(torch.equal(x, total / SIZE), "all_reduce", x, total / SIZE)
    x = plain(RANK, (999,), seed=1)
    dist.reduce(x, 0, dist.ReduceOp.AVG)
    expect(RANK > 0 or torch.equal(x, total / SIZE), "reduce", x, total / SIZE)
    part = torch.zeros(333)
    dist.reduce_scatter_tensor(part, plain(RANK, (SIZE * 333,), seed=2), dist.ReduceOp.AVG)
    total = sum(plain(rank, (SIZE * 333,), seed=2) for rank in range(SIZE))
    expect(torch.equal(part, (total / SIZE).chunk(SIZE)[RANK]), "reduce_scatter", part)


def profiled():
    """The profiler's events have gloo's names, with the backend's own prefix, and the same shapes."""
    def events(group):
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(torch.ones(3, 2), group=group)
            dist.all_reduce_coalesced([torch.ones(3), torch.ones(4)], group=group)
            dist.broadcast(torch.ones(3), 0, group=group)
            dist.reduce(torch.ones(5), 0, group=group)
            dist.all_gather([torch.ones(6) for _ in range(SIZE)], torch.ones(6), group=group)
            dist.gather(torch.ones(2), [torch.ones(2) for _ in range(SIZE)] if RANK == 0 else None, 0, group=group)
            dist.scatter(torch.ones(2), [torch.ones(2) for _ in range(SIZE)] if RANK == 0 else None, 0, group=group)
            dist.all_to_all_single(torch.ones(SIZE, 2), torch.ones(SIZE, 2), group=group)
            dist.all_reduce(torch.eye(3).to_sparse(), group=group)
            dist.barrier(group=group)
            if SIZE > 1 and RANK < 2:
                x = torch.ones(7)
                dist.send(x, 1, group=group) if RANK == 0 else dist.recv(x, 0, group=group)
                dist.recv(x, 1, group=group) if RANK == 0 else dist.send(x, 0, group=group)
        found = [(event.name, event.input_shapes, event.is_async) for event in profile.function_events
                 if event.name.startswith(("dunlin:", "gloo:"))]
        return sorted((name.split(":")[1], shapes, is_async) for name, shapes, is_async in found)

    expect(events(None) == events(GLOO), "events", events(None), events(GLOO))


dist.init_process_group("dunlin")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GLOO = dist.new_group(backend="gloo")
for part in [globals()[name] for name in sys.argv[1:]] or [layouts, zero_redundancy, sparse, unequal_lists,
                                                       exchanges_in_place, averages, profiled]:
    part()
dist.barrier()
dist.destroy_process_group()
print("ok", flush=True)
