"""The PyTorch backend and dunlin.torch on a GPU, on every rank of a job: dunlin-run -n N python3 torch_cuda_test.py

It needs PyTorch with CUDA, and skips without. All ranks use GPU 0. torch_on_standin.py runs it without a GPU, where
PyTorch has one stream and is done with its work at once; c10d_gpu_test.py and torch_gpu_test.py are about streams there.
"""

import functools
import sys
import unittest

import torch

if not torch.cuda.is_available():
    print("skipped: this PyTorch has no CUDA, or this host no GPU")
    sys.exit(77)

import torch.distributed as dist

import dunlin
import dunlin.c10d
import dunlin.torch as bf

GPU = torch.device("cuda", 0)
TYPES = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
IS_STANDIN = torch.version.cuda is None  # see torch_on_standin.py
SIZES = [1, 3, 1000, 1 << 20] + ([] if IS_STANDIN else [(5 << 20) + 7])


def values(rank, count, dtype=torch.float32):
    """Small integers, whose sums are exact."""
    generator = torch.Generator().manual_seed(1000 * count + rank)
    return torch.randint(1, 4, (count,), generator=generator).to(dtype)


def slow(tensor):
    """Makes the current stream of a GPU busy for about a millisecond before what comes next."""
    if IS_STANDIN:
        return tensor  # PyTorch's work is over at once on the stand-in
    x = torch.ones(2048, 2048, device=GPU)
    for _ in range(20):
        x = x @ x * 1e-4
    return tensor


class TorchOnGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        dist.init_process_group("dunlin")
        cls.rank, cls.size = dist.get_rank(), dist.get_world_size()

    def all_values(self, count, dtype=torch.float32):
        return [values(rank, count, dtype) for rank in range(self.size)]

    def check(self, tensor, expected):
        self.assertTrue(torch.equal(tensor.cpu(), expected), f"{tensor.cpu().flatten()[:8]} is not {expected.flatten()[:8]}")

    def test_all_reduce_of_all_types_and_sizes(self):
        for dtype in TYPES:
            for count in SIZES:
                with self.subTest(dtype=dtype, count=count):
                    x = values(self.rank, count, dtype).to(GPU)
                    dist.all_reduce(x)
                    self.check(x, sum(self.all_values(count, torch.int64)).to(dtype))

    def test_operations(self):
        every = torch.stack(self.all_values(1000, torch.float64))
        for op, expected in [(dist.ReduceOp.MIN, every.amin(0)), (dist.ReduceOp.MAX, every.amax(0)),
                             (dist.ReduceOp.PRODUCT, every.prod(0)), (dist.ReduceOp.AVG, every.sum(0) / self.size)]:
            x = values(self.rank, 1000, torch.float64).to(GPU)
            dist.all_reduce(x, op)
            self.check(x, expected)

    def test_premultiplied_sum(self):
        x = values(self.rank, 1000).to(GPU)
        dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
        self.check(x, 2 * sum(self.all_values(1000)))

    def test_bitwise(self):
        x = values(self.rank, 1000, torch.int32).to(GPU)
        dist.all_reduce(x, dist.ReduceOp.BOR)
        expected = self.all_values(1000, torch.int32)[0]
        for other in self.all_values(1000, torch.int32):
            expected = expected | other
        self.check(x, expected)

    def test_it_comes_behind_the_current_stream_and_before_what_follows(self):
        stream = torch.cuda.Stream(GPU)
        for _ in range(10):
            with torch.cuda.stream(stream):
                x = torch.zeros(1 << 20, device=GPU)
                slow(x)
                x += self.rank + 1
                dist.all_reduce(x)
                y = x * 2
                x.zero_()
            stream.synchronize()
            self.check(y[:1000], torch.full((1000,), 2.0 * sum(range(1, self.size + 1))))

    def test_asynchronous_calls_and_memory_that_is_used_again(self):
        works, kept = [], []
        for call in range(20):
            x = torch.full((300_000,), float(call + self.rank), device=GPU)
            works.append(dist.all_reduce(x, async_op=True))
            kept.append(x)
            torch.full((300_000,), -1.0, device=GPU)  # freed at once
        for call, (work, x) in enumerate(zip(works, kept)):
            work.wait()
            self.check(x, torch.full((300_000,), float(call * self.size + sum(range(self.size)))))

    def test_not_contiguous(self):
        x = values(self.rank, 600).view(20, 30).to(GPU).t()
        dist.all_reduce(x)
        self.check(x, sum(self.all_values(600)).view(20, 30).t())

    def test_broadcast_and_reduce(self):
        for root in range(self.size):
            x = values(self.rank, 5000).to(GPU)
            dist.broadcast(x, root)
            self.check(x, values(root, 5000))
            x = values(self.rank, 5000).to(GPU)
            dist.reduce(x, root)
            if self.rank == root:
                self.check(x, sum(self.all_values(5000)))

    def test_gathers_and_scatters(self):
        x = values(self.rank, 1000).to(GPU)
        parts = [torch.empty(1000, device=GPU) for _ in range(self.size)]
        dist.all_gather(parts, x)
        for part, expected in zip(parts, self.all_values(1000)):
            self.check(part, expected)
        whole = torch.empty(1000 * self.size, device=GPU)
        dist.all_gather_into_tensor(whole, x)
        self.check(whole, torch.cat(self.all_values(1000)))
        piece = torch.empty(1000, device=GPU)
        dist.reduce_scatter_tensor(piece, whole)
        self.check(piece, self.size * values(self.rank, 1000))
        out = torch.empty(1000 * self.size, device=GPU)
        dist.all_to_all_single(out, torch.cat([values(self.rank * self.size + to, 1000) for to in range(self.size)]).to(GPU))
        self.check(out, torch.cat([values(sender * self.size + self.rank, 1000) for sender in range(self.size)]))

    def test_calls_that_go_through_the_host(self):
        x = values(self.rank, 777).to(GPU)
        if self.size > 1:
            right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
            got = torch.empty(777, device=GPU)
            calls = [dist.isend(slow(x), right), dist.irecv(got, left)]
            for call in calls:
                call.wait()
            self.check(got, values(left, 777))
        gathered = [torch.empty(777, device=GPU) for _ in range(self.size)] if self.rank == 0 else None
        dist.gather(x, gathered, 0)
        if self.rank == 0:
            for part, expected in zip(gathered, self.all_values(777)):
                self.check(part, expected)
        dist.barrier()

    @unittest.skipUnless(hasattr(dist, "_coalescing_manager"), "needs PyTorch 2")
    def test_coalesced(self):
        tensors = [values(self.rank, count).to(GPU) for count in (10, 1000, 100_000)]
        with dist._coalescing_manager(device=GPU, async_ops=True) as manager:
            for x in tensors:
                dist.all_reduce(x)
        manager.wait()
        for x, count in zip(tensors, (10, 1000, 100_000)):
            self.check(x, sum(self.all_values(count)))

    def test_host_and_gpu_calls_in_turns(self):
        for _ in range(5):
            x, y = values(self.rank, 1000).to(GPU), values(self.rank, 1000)
            dist.all_reduce(x)
            dist.all_reduce(y)
            self.check(x, y)

    def test_groups(self):
        group = dist.new_group(list(range(self.size))[::-1])
        x = values(self.rank, 1000).to(GPU)
        dist.all_reduce(x, group=group)
        self.check(x, sum(self.all_values(1000)))
        dist.destroy_process_group(group)

    def train(self, wrap):
        torch.manual_seed(5)
        nn = torch.nn
        model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 900, 100), nn.ReLU(),
                              nn.Linear(100, 10)).double().to(GPU)
        model = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for step in range(4):
            generator = torch.Generator().manual_seed(step)
            images = torch.randn(4 * self.size, 3, 32, 32, generator=generator, dtype=torch.float64)
            labels = torch.randint(0, 10, (4 * self.size,), generator=generator)
            optimizer.zero_grad()
            yield model, images, labels
            optimizer.step()

    def test_data_parallel_training_equals_training_alone(self):
        loss = torch.nn.functional.cross_entropy
        for model, images, labels in self.train(lambda model: model):
            loss(model(images.to(GPU)), labels.to(GPU)).backward()
        alone = [parameter.detach() for parameter in model.parameters()]

        def wrap(model):
            return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=1)
        mine = slice(4 * self.rank, 4 * self.rank + 4)
        for model, images, labels in self.train(wrap):
            loss(model(images[mine].to(GPU)), labels[mine].to(GPU)).backward()
        for parameter, expected in zip(model.parameters(), alone):
            self.assertTrue(torch.allclose(parameter, expected, rtol=1e-9, atol=1e-12))

    def test_hooks_of_data_parallel_training(self):
        """Their models are those that the same hooks give on the CPU, to the rounding of the gradients."""
        hooks = {"gossip": lambda: (dunlin.c10d.GossipState(), dunlin.c10d.gossip_hook),
                 "straggler ring": lambda: (dunlin.c10d.StragglerRingState("never"), dunlin.c10d.straggler_ring_hook)}

        def trained(hook, device):
            torch.manual_seed(5)
            model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1)).double().to(device)
            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=None if device == "cpu" else [0],
                                                              bucket_cap_mb=0.002)
            model.register_comm_hook(*hook())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            x = torch.randn(16, 20, generator=torch.Generator().manual_seed(self.rank), dtype=torch.float64).to(device)
            for _ in range(5):
                optimizer.zero_grad()
                slow((model(x) - x.sum(1, keepdim=True)).square().mean()).backward()
                optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()

        for name, hook in hooks.items():
            with self.subTest(hook=name):
                self.assertTrue(torch.allclose(trained(hook, GPU), trained(hook, "cpu"), rtol=1e-9, atol=1e-12))

    def test_sharded_training_equals_training_alone(self):
        if not hasattr(dist, "device_mesh"):
            self.skipTest("needs PyTorch 2")
        from torch.distributed.fsdp import fully_shard
        loss = torch.nn.functional.cross_entropy
        for model, images, labels in self.train(lambda model: model):
            loss(model(images.to(GPU)), labels.to(GPU)).backward()
        alone = [parameter.detach() for parameter in model.parameters()]
        mesh = dist.device_mesh.init_device_mesh("cuda", (self.size,))
        mine = slice(4 * self.rank, 4 * self.rank + 4)
        for model, images, labels in self.train(lambda model: fully_shard(model, mesh=mesh)):
            loss(model(images[mine].to(GPU)), labels[mine].to(GPU)).backward()
        for parameter, expected in zip(model.parameters(), alone):
            self.assertTrue(torch.allclose(parameter.full_tensor(), expected, rtol=1e-9, atol=1e-12))


class PackageOnGpu(unittest.TestCase):
    """The Python package and dunlin.torch. torch_on_standin.py runs these tests without a GPU, too."""

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        bf.init()
        cls.rank, cls.size = bf.rank(), bf.size()

    def all_values(self, count):
        return [values(rank, count) for rank in range(self.size)]

    def check(self, tensor, expected):
        self.assertTrue(torch.equal(tensor.cpu(), expected), f"{tensor.cpu().flatten()[:8]} is not {expected.flatten()[:8]}")

    def test_collectives_and_neighbor_averages(self):
        x = values(self.rank, 1000).to(GPU)
        y = bf.allreduce(x, average=False)
        self.assertEqual(y.device, x.device)
        self.check(y, sum(self.all_values(1000)))
        self.check(bf.broadcast(x, 0), values(0, 1000))
        if self.size > 1:
            averaged = bf.neighbor_allreduce(slow(x).clone())
            self.assertEqual(averaged.device, x.device)
            self.check(averaged, bf.neighbor_allreduce(x.cpu()))

    def test_optimizers_average_models_on_the_gpu(self):
        """They end with the parameters that they have on the CPU, to the rounding of the gradients."""

        def trained(wrap, device):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1)).double().to(device)
            optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
            x = torch.randn(16, 20, generator=torch.Generator().manual_seed(self.rank), dtype=torch.float64).to(device)
            for _ in range(5):
                optimizer.zero_grad()
                (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
                optimizer.step()
            return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()

        for wrap in (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedAdaptWithCombineOptimizer,
                     bf.DistributedDmSGDOptimizer):
            with self.subTest(wrap=wrap.__name__):
                self.assertTrue(torch.allclose(trained(wrap, GPU), trained(wrap, "cpu"), rtol=1e-9, atol=1e-12))

    def fitted(self, wrap):
        """(the optimizer, the first error, the last one) of a linear model that the ranks train with data of their own."""
        torch.manual_seed(1)
        model = torch.nn.Linear(10, 1).to(GPU)
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.05), model)
        true = torch.arange(10.0, device=GPU)
        for step in range(60):
            generator = torch.Generator().manual_seed(step * self.size + self.rank)
            images = torch.randn(32, 10, generator=generator).to(GPU)
            error = ((model(images).squeeze() - images @ true) ** 2).mean()
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            first = error.item() if step == 0 else first
        return optimizer, first, error.item()

    def test_optimizers_with_windows_on_the_gpu(self):
        _, first, last = self.fitted(bf.DistributedWinPutOptimizer)
        self.assertLess(last, first / 10)
        bf.barrier()
        bf.win_free()

    def test_windows(self):
        """They end with the tensors that they have in host memory."""
        bf.set_topology(bf.topology_util.RingGraph(self.size))

        def run(device, name):
            x = values(self.rank, 1000).to(device)
            found = []
            self.assertTrue(bf.win_create(x, name))
            bf.win_put(slow(x), name)
            bf.barrier()
            found.append(bf.win_update(name, clone=True))
            self.check(x, values(self.rank, 1000))
            bf.barrier()
            bf.win_accumulate(x * 3, name, self_weight=0.5, require_mutex=True)
            bf.barrier()
            found.append(bf.win_update_then_collect(name).clone())
            bf.barrier()
            bf.win_get(name)
            bf.barrier()  # win_update() changes the tensors that neighbors get
            found.append(bf.win_update(name))
            for each in found:
                self.assertEqual(each.device.type, device if device == "cpu" else device.type)
            versions = bf.get_win_version(name)
            bf.barrier()
            self.assertTrue(bf.win_free(name))
            return [each.cpu() for each in found], versions

        on_host, host_versions = run("cpu", "on the host")
        on_gpu, versions = run(GPU, "on the GPU")
        self.assertEqual(versions, host_versions)
        for one, other in zip(on_gpu, on_host):
            self.check(one, other)

    def test_partial_averages(self):
        everybody = list(range(self.size))
        x = values(self.rank, 1000).to(GPU)
        self.check(bf.partial_allreduce(slow(x), everybody), bf.partial_allreduce(x.cpu(), everybody))
        self.check(bf.partial_allreduce_(x, everybody, average=False), sum(self.all_values(1000)))

    def test_methods_train_a_model_on_the_gpu(self):
        for method in ["all-reduce", "local-sgd", "stochastic", "partial"]:
            with self.subTest(method=method):
                optimizer, first, last = self.fitted(functools.partial(bf.DistributedOptimizer, method=method))
                optimizer.leave()
                self.assertLess(last, first / 10)

    def test_python_arrays(self):
        if not dunlin.world().can_use_gpu(0):
            self.skipTest("no transport for memory of GPUs")
        x = values(self.rank, 4096).to(GPU)
        result = torch.from_dlpack(dunlin.all_reduce(x))
        self.assertEqual(result.device, GPU)
        self.check(result, sum(self.all_values(4096)))
        dunlin.all_reduce(slow(x), "max", out=x)
        self.check(x, torch.stack(self.all_values(4096)).amax(0))
        shared = torch.from_dlpack(dunlin.empty(4096, "float32", device=0))
        shared.fill_(self.rank + 1)
        dunlin.all_reduce(shared, out=shared)
        self.check(shared, torch.full((4096,), float(sum(range(1, self.size + 1)))))


if __name__ == "__main__":
    unittest.main(verbosity=2, failfast=False)
