"""Tensors that are not in host memory, through dunlin.c10d and dunlin.torch: dunlin-run -n N python3 staged_test.py

PyTorch's lazy tensors, which its TorchScript backend computes on the CPU, stand for a GPU's: a device of its own, whose
tensors have no memory that a program could reach, and where work is enqueued until its result is needed.
"""

import sys
import time
import unittest
import warnings

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")

try:
    import networkx  # noqa: F401
    import torch._lazy.ts_backend

    torch._lazy.ts_backend.init()
    torch.ones(1, device="lazy").cpu()
except Exception as error:  # its type depends on how PyTorch was built
    print("skipped: lazy tensors and networkx are needed:", error)
    sys.exit(77)

import dunlin  # noqa: E402
import dunlin.c10d  # noqa: E402
import dunlin.torch as bf  # noqa: E402

COUNT = 1000


def setUpModule():
    torch.set_num_threads(1)
    dist.init_process_group("dunlin")
    bf.init()


def tearDownModule():
    dist.barrier()


def values(rank, count=COUNT):
    return (torch.arange(count, dtype=torch.float32) * (rank + 2) + rank) % 11


def lazy(tensor):
    """A tensor with work on it still enqueued."""
    return (tensor - 1).to("lazy") + 1


def empty(count=COUNT):
    return torch.full((count,), -1.0).to("lazy")


class C10d(unittest.TestCase):
    def setUp(self):
        # Bypasses the dispatcher: later versions have no c10d kernels for this device in it.
        group = dist.distributed_c10d._get_default_group()
        self.group = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.last = self.size - 1
        self.own = values(self.rank)
        self.all = [values(rank) for rank in range(self.size)]
        self.total = sum(self.all)

    def check(self, tensor, expected):
        self.assertEqual(tensor.device.type, "lazy")
        self.assertTrue(torch.equal(tensor.cpu(), expected), (tensor.cpu(), expected))

    def rooted(self, kind):
        options = kind()
        options.rootRank = self.last
        return options

    def test_all_reduce(self):
        x = lazy(self.own)
        work = self.group.allreduce([x])
        work.wait()
        self.check(x, self.total)
        self.assertEqual(work.get_future().wait()[0].device.type, "lazy")

    def test_bits(self):
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.BOR
        x = torch.tensor([1 << self.rank, 0]).to("lazy")
        self.group.allreduce([x], options).wait()
        self.check(x, torch.tensor([(1 << self.size) - 1, 0]))

    def test_all_reduce_coalesced(self):
        x, y = lazy(self.own), lazy(2 * self.own)
        self.group.allreduce_coalesced([x, y]).wait()
        self.check(x, self.total)
        self.check(y, 2 * self.total)

    def test_what_is_enqueued_later_is_not_sent(self):
        x = lazy(self.own)
        y = empty(self.size * COUNT)
        work = self.group._allgather_base(y, x)
        x.add_(100)
        work.wait()
        self.check(y, torch.cat(self.all))
        self.check(x, self.own + 100)

    def test_reduce(self):
        x = lazy(self.own)
        self.group.reduce([x], self.rooted(dist.ReduceOptions)).wait()
        self.check(x, self.total if self.rank == self.last else self.own)

    def test_broadcast(self):
        x = lazy(self.own)
        self.group.broadcast([x], self.rooted(dist.BroadcastOptions)).wait()
        self.check(x, self.all[self.last])

    def test_all_gather(self):
        outputs = [empty() for _ in range(self.size)]
        self.group.allgather([outputs], [lazy(self.own)]).wait()
        for output, expected in zip(outputs, self.all):
            self.check(output, expected)

    def test_reduce_scatter(self):
        output = empty()
        self.group.reduce_scatter([output], [[lazy(self.own + part) for part in range(self.size)]]).wait()
        self.check(output, self.total + self.size * self.rank)
        self.group._reduce_scatter_base(output, lazy(torch.cat([self.own + part for part in range(self.size)]))).wait()
        self.check(output, self.total + self.size * self.rank)

    def test_gather(self):
        outputs = [empty() for _ in range(self.size)]
        self.group.gather([outputs] if self.rank == self.last else [], [lazy(self.own)],
                          self.rooted(dist.GatherOptions)).wait()
        for output, expected in zip(outputs, self.all):
            self.check(output, expected if self.rank == self.last else torch.full((COUNT,), -1.0))

    def test_scatter(self):
        output = empty()
        inputs = [[lazy(values(rank + 5)) for rank in range(self.size)]] if self.rank == self.last else []
        self.group.scatter([output], inputs, self.rooted(dist.ScatterOptions)).wait()
        self.check(output, values(self.rank + 5))

    def test_all_to_all(self):
        inputs = [lazy(self.own + part) for part in range(self.size)]
        expected = [each + self.rank for each in self.all]
        output = empty(self.size * COUNT)
        self.group.alltoall_base(output, torch.cat(inputs), [], []).wait()
        self.check(output, torch.cat(expected))
        output = empty(self.size * COUNT)
        splits = [COUNT] * self.size
        self.group.alltoall_base(output, torch.cat(inputs), splits, splits).wait()
        self.check(output, torch.cat(expected))

    def test_messages(self):
        x = empty()
        sending = self.group.send([lazy(self.own)], (self.rank + 1) % self.size, 3) if self.size > 1 else None
        if sending is not None:
            self.group.recv([x], (self.rank - 1) % self.size, 3).wait()
            sending.wait()
            self.check(x, self.all[self.rank - 1])

    def test_the_other_device_may_be_the_hosts(self):
        output = torch.empty(self.size * COUNT)
        self.group._allgather_base(output, lazy(self.own)).wait()
        self.assertTrue(torch.equal(output, torch.cat(self.all)))

    def test_a_parameter(self):
        x = lazy(self.own).requires_grad_()
        self.group.allreduce([x]).wait()
        self.check(x.detach(), self.total)

    def test_gossip(self):
        class Bucket:
            def buffer(self):
                return x

            def index(self):
                return 0

            def is_last(self):
                return True

            def parameters(self):
                return []

        state = dunlin.c10d.GossipState()
        for step in range(3):
            own, sources, _ = state.neighbors()
            expected = own * values(self.rank + step) + sum(
                weight * values(source + step) for source, weight in sources.items())
            x = lazy(values(self.rank + step))
            future = dunlin.c10d.gossip_hook(state, Bucket())
            self.assertIs(future.wait(), x)
            self.check(x, expected)

    def test_nothing(self):
        x = empty(0)
        self.group.allreduce([x]).wait()
        self.check(x, torch.empty(0))


class Bluefog(unittest.TestCase):
    def check(self, tensor, expected):
        self.assertEqual(tensor.device.type, "lazy")
        self.assertTrue(torch.allclose(tensor.cpu(), expected), (tensor.cpu(), expected))

    def same(self, call):
        """Checks that `call(to, x)` has the same result on every device; `to` moves a tensor to the device."""
        x = values(bf.rank())
        on_host = call(x.clone())
        staged = lazy(x)
        result = call(staged)
        self.check(result, on_host)
        return staged, result, on_host

    def test_new_tensors(self):
        for call in (bf.allreduce, bf.allgather, bf.neighbor_allreduce, bf.neighbor_allgather,
                     lambda x: bf.broadcast(x, bf.size() - 1),
                     lambda x: bf.partial_allreduce(x, range(bf.size())),
                     lambda x: bf.pair_gossip(x, bf.rank() ^ 1) if bf.size() % 2 == 0 else x):
            staged, result, _ = self.same(call)
            if result is not staged:
                self.check(staged, values(bf.rank()))

    def test_in_place(self):
        for call in (bf.allreduce_, bf.neighbor_allreduce_, lambda x: bf.broadcast_(x, bf.size() - 1),
                     lambda x: bf.partial_allreduce_(x, range(bf.size()))):
            staged, result, on_host = self.same(call)
            self.assertIs(result, staged)
            self.check(staged, on_host)

    def test_what_has_no_arithmetic(self):
        x = torch.tensor([bf.rank(), 7], dtype=torch.int16).to("lazy")
        bf.broadcast_(x, bf.size() - 1)
        self.check(x, torch.tensor([bf.size() - 1, 7], dtype=torch.int16))

    def test_until_synchronize(self):
        x = lazy(values(bf.rank()))
        handle = bf.allreduce_nonblocking_(x)
        until = time.monotonic() + 60
        while not bf.poll(handle) and time.monotonic() < until:
            pass
        self.check(x, values(bf.rank()))  # the result is only in host memory so far
        bf.synchronize(handle)
        self.check(x, sum(values(rank) for rank in range(bf.size())) / bf.size())

    def test_training(self):
        def train(device):
            torch.manual_seed(2)
            model = torch.nn.Linear(5, 1).to(device)
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer = bf.DistributedAdaptWithCombineOptimizer(inner, model)
            generator = torch.Generator().manual_seed(bf.rank())
            for _ in range(3):
                x = torch.randn((8, 5), generator=generator).to(device)
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            return torch.cat([p.detach().cpu().flatten() for p in model.parameters()])

        self.assertTrue(torch.allclose(train("lazy"), train("cpu"), atol=1e-5))

    def test_broadcast_parameters(self):
        # Tensors of the same shape, on the same device, without an address.
        one, other = lazy(values(bf.rank())), lazy(values(bf.rank() + 10))
        nothing = [empty(0), empty(0)]
        bf.broadcast_parameters({"one": one, "other": other, "again": one, "x": nothing[0], "y": nothing[1]}, 0)
        self.check(one, values(0))
        self.check(other, values(10))

    def test_what_is_put_into_a_window(self):
        window = torch.zeros(COUNT)
        self.assertTrue(bf.win_create(window, "put", zero_init=True))
        x = lazy(values(bf.rank()))
        bf.win_put(x, "put", self_weight=0.5)
        self.check(x, 0.5 * values(bf.rank()))
        bf.barrier()
        sources = bf.in_neighbor_ranks()
        total = bf.win_update("put", 1.0, dict.fromkeys(sources, 1.0))
        # A tensor that is not the window's, which is unchanged.
        self.assertTrue(torch.allclose(total, sum((values(source) for source in sources), torch.zeros(COUNT))))
        bf.win_free("put")

    def test_no_elements_at_all(self):
        with self.assertRaisesRegex(ValueError, "meta device"):
            bf.allreduce(torch.empty(3, device="meta"))

    def test_windows_are_in_host_memory(self):
        with self.assertRaisesRegex(ValueError, "host memory"):
            bf.win_create(lazy(values(0)), "staged")


if __name__ == "__main__":
    unittest.main()
