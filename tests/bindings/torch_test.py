"""BlueFog's interface on PyTorch tensors: dunlin-run -n N python3 torch_test.py [MACHINES]

Every rank computes the expected results from the known inputs of the others.
"""

import os
import sys
import time
import unittest

import networkx
import numpy
import torch

import dunlin
import dunlin.torch as bf

torch.set_num_threads(1)
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
EVERY = FLOATING + [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
TOPOLOGIES = [bf.ExponentialGraph, bf.RingGraph, lambda size: bf.RingGraph(size, 1), lambda size: bf.RingGraph(size, 2),
              bf.StarGraph, lambda size: bf.StarGraph(size, size - 1), bf.MeshGrid2DGraph, bf.FullyConnectedGraph,
              bf.SymmetricExponentialGraph]


def setUpModule():
    bf.init()


def values(rank, shape=(7, 3), dtype=torch.float64):
    """Small integers, exact in every type, that differ between ranks."""
    count = int(numpy.prod(shape))
    return ((torch.arange(count, dtype=torch.float64) * (rank + 2) + rank) % 11).reshape(shape).to(dtype)


class Basics(unittest.TestCase):
    def test_ranks(self):
        self.assertEqual(bf.env.mpi_env_rank_and_size(), (bf.rank(), bf.size()))
        self.assertEqual(bf.rank(), bf.machine_rank() * bf.local_size() + bf.local_rank())
        self.assertEqual(bf.size(), bf.machine_size() * bf.local_size())
        if "DUNLIN_NODES_PER_MACHINE" in os.environ or "BLUEFOG_NODES_PER_MACHINE" in os.environ:
            self.assertEqual(bf.machine_size(), int(sys.argv[1]))

    def test_environment_is_set_for_a_time(self):
        with bf.env.env(DUNLIN_TORCH_TEST="1", HOME=None):
            self.assertEqual(os.environ["DUNLIN_TORCH_TEST"], "1")
            self.assertNotIn("HOME", os.environ)
        self.assertNotIn("DUNLIN_TORCH_TEST", os.environ)

    def test_topologies(self):
        for make in TOPOLOGIES:
            topology = make(bf.size())
            self.assertTrue(bf.set_topology(topology, is_weighted=True))
            self.assertTrue(bf.IsTopologyEquivalent(bf.load_topology(), topology))
            self.assertEqual(bf.in_neighbor_ranks(), sorted(set(topology.predecessors(bf.rank())) - {bf.rank()}))
            self.assertEqual(bf.out_neighbor_ranks(), sorted(set(topology.successors(bf.rank())) - {bf.rank()}))
            own, others = bf.GetRecvWeights(topology, bf.rank())
            self.assertAlmostEqual(own + sum(others.values()), 1)
            expected = (networkx.to_numpy_array(topology) > 0).astype(float)
            expected /= expected.sum(axis=0)
            for infer, given, found in [(bf.InferDestinationFromSourceRanks, bf.in_neighbor_ranks(), bf.out_neighbor_ranks()),
                                        (bf.InferSourceFromDestinationRanks, bf.out_neighbor_ranks(), bf.in_neighbor_ranks())]:
                self.assertEqual(infer(given), found)
                ranks, matrix = infer(given, construct_adjacency_matrix=True)
                self.assertEqual(ranks, found)
                numpy.testing.assert_allclose(matrix, expected)
        self.assertFalse(bf.IsTopologyEquivalent(bf.StarGraph(3), bf.RingGraph(4)))
        self.assertEqual([x for x in range(1, 30) if bf.topology_util.isPowerOf(x, 3)], [1, 3, 9, 27])
        for x, base in ((0, 2), (4, 1)):
            with self.assertRaises(ValueError):
                bf.isPowerOf(x, base)

    def test_without_a_topology_it_is_the_default(self):
        for set_again in (bf.set_topology, bf.init):
            bf.set_topology(bf.RingGraph(bf.size()), is_weighted=True)
            set_again()
            self.assertTrue(bf.IsTopologyEquivalent(bf.load_topology(), bf.ExponentialGraph(bf.size())))
            self.assertFalse(bf.is_topo_weighted())

    def test_init_again(self):
        """A cell of a notebook that is run again, also after an error: everything but the topology stays."""
        def broken(size):
            if bf.rank() == bf.size() - 1:
                raise ArithmeticError("on one rank")
            return bf.RingGraph(size)

        handle = bf.neighbor_allreduce_nonblocking(values(bf.rank()), name="before")
        bf.init(bf.RingGraph)
        with self.assertRaises(ArithmeticError if bf.rank() == bf.size() - 1 else ValueError):
            bf.init(broken)
        self.assertTrue(bf.IsTopologyEquivalent(bf.load_topology(), bf.RingGraph(bf.size())))
        self.assertEqual(bf.synchronize(handle).shape, (7, 3))
        dunlin.init()
        bf.init()
        total = sum(values(rank) for rank in range(bf.size()))
        self.assertTrue(torch.equal(bf.allreduce(values(bf.rank()), average=False), total))

    def test_bad_topologies_are_errors_on_all_ranks(self):
        bf.set_topology(bf.RingGraph(bf.size()))
        with self.assertRaises(TypeError):
            bf.set_topology("ring")
        with self.assertRaises(ValueError):
            bf.set_topology(bf.RingGraph(bf.size() + 1))
        if bf.size() > 2:
            mine = bf.StarGraph(bf.size()) if bf.rank() == 1 else bf.RingGraph(bf.size())
            with self.assertRaises(ValueError):
                bf.set_topology(mine)
        self.assertTrue(bf.IsTopologyEquivalent(bf.load_topology(), bf.RingGraph(bf.size())))

    def test_dynamic_graphs_match(self):
        size, local = bf.size(), bf.local_size()
        made = [lambda rank: bf.GetDynamicOnePeerSendRecvRanks(bf.ExponentialGraph(size), rank)]
        if size > 1 and not (local == 2 and size > 2):
            made += [lambda rank: bf.GetInnerOuterRingDynamicSendRecvRanks(size, local, rank),
                     lambda rank: bf.GetInnerOuterExpo2DynamicSendRecvRanks(size, local, rank)]
        for make in made:
            generators = [make(rank) for rank in range(size)]
            for _ in range(8):
                steps = [next(generator) for generator in generators]
                sends = {(rank, to) for rank, (send, _) in enumerate(steps) for to in send}
                self.assertEqual(sends, {(source, rank) for rank, (_, receive) in enumerate(steps) for source in receive})

    def test_bad_tensors(self):
        for bad in [[1.0], torch.ones(3).to_sparse(), torch.eye(3).to_sparse_csr()]:
            with self.assertRaises(ValueError):
                bf.neighbor_allreduce(bad)
        with self.assertRaises(ValueError):
            bf.allreduce(torch.ones(3, dtype=torch.int32))
        with self.assertRaises(ValueError):
            bf.synchronize(10**9)


class Layouts(unittest.TestCase):
    """Tensors that aren't contiguous: transposed, channels_last, every second column."""

    def layouts(self, rank):
        image = values(rank, (2, 3, 4, 5)).to(memory_format=torch.channels_last)
        return [values(rank, (3, 7)).t(), image, values(rank, (4, 6))[:, ::2]]

    def test_every_operation(self):
        bf.set_topology(bf.FullyConnectedGraph(bf.size()))
        last = bf.size() - 1
        for number, tensor in enumerate(self.layouts(bf.rank())):
            everyone = [self.layouts(rank)[number] for rank in range(bf.size())]
            average = sum(everyone) / bf.size()
            for name, expected in [("allreduce", average), ("neighbor_allreduce", average), ("broadcast", everyone[last])]:
                arguments = [last] if name == "broadcast" else []
                self.assertTrue(torch.allclose(getattr(bf, name)(tensor, *arguments), expected), name)
                into = tensor.clone(memory_format=torch.preserve_format)
                strides = into.stride()
                self.assertIs(getattr(bf, name + "_")(into, *arguments), into)
                self.assertTrue(torch.allclose(into, expected), name)
                self.assertEqual(into.stride(), strides)
            part = torch.zeros(4, 6, dtype=tensor.dtype)
            part[:, ::2] = values(bf.rank(), (4, 3))
            bf.allreduce_(part[:, ::2], average=False)
            self.assertTrue(torch.equal(part[:, ::2], sum(values(rank, (4, 3)) for rank in range(bf.size()))))
            self.assertEqual(part[:, 1::2].abs().sum(), 0)
            self.assertTrue(torch.equal(bf.allgather(tensor), torch.cat(everyone)))
            gathered = [everyone[rank] for rank in range(bf.size()) if rank != bf.rank()]
            if gathered:
                self.assertTrue(torch.equal(bf.neighbor_allgather(tensor), torch.cat(gathered)))
            self.assertTrue(torch.equal(bf.broadcast(tensor > 5, last), everyone[last] > 5))


class Collectives(unittest.TestCase):
    def test_allreduce(self):
        for dtype in FLOATING:
            for shape in [(), (0,), (5,), (7, 3)]:
                tensor = values(bf.rank(), shape, dtype)
                total = sum(values(rank, shape) for rank in range(bf.size()))
                for average, expected in [(True, total / bf.size()), (False, total)]:
                    result = bf.allreduce(tensor, average=average, name="x")
                    self.assertEqual(result.dtype, dtype)
                    bound = 0.05 if dtype in (torch.float16, torch.bfloat16) else 1e-5
                    self.assertTrue(torch.allclose(result.double(), expected, rtol=bound, atol=bound))
                bf.allreduce_(tensor, average=False)
                self.assertTrue(torch.equal(tensor.double(), total.to(dtype).double()))
        self.assertEqual(bf.allreduce(torch.tensor([3], dtype=torch.int64), average=False).item(), 3 * bf.size())

    def test_partial_allreduce(self):
        first = bf.rank() // 2 * 2
        group = [rank for rank in (first, first + 1) if rank < bf.size()]
        for dtype in FLOATING:
            x = values(bf.rank(), dtype=dtype)
            total = sum(values(rank) for rank in group)
            self.assertTrue(torch.equal(bf.partial_allreduce(x, group, average=False), total.to(dtype)))
            handle = bf.partial_allreduce_nonblocking_(x, group, name="pairs")
            self.assertIs(bf.synchronize(handle), x)
            self.assertTrue(torch.equal(x, (total / len(group)).to(dtype)))
        x = torch.ones(3, dtype=torch.int32)
        self.assertIs(bf.partial_allreduce_(x, group, average=False, number=1000), x)
        self.assertEqual(x.tolist(), 3 * [len(group)])
        with self.assertRaises(ValueError):
            bf.partial_allreduce(x, group)
        with self.assertRaises(dunlin.InvalidArgumentError):
            bf.partial_allreduce(torch.ones(3), [])

    def test_broadcast(self):
        for dtype in EVERY:
            for root in range(bf.size()):
                tensor = values(bf.rank(), dtype=dtype)
                result = bf.broadcast(tensor, root)
                self.assertTrue(torch.equal(result, values(root, dtype=dtype)), dtype)
                self.assertTrue(torch.equal(tensor, values(bf.rank(), dtype=dtype)))
                self.assertIs(bf.broadcast_(tensor, root), tensor)
                self.assertTrue(torch.equal(tensor, values(root, dtype=dtype)))

    def test_allgather_of_different_lengths(self):
        for dtype in EVERY:
            for tail in [(), (3,), (2, 2)]:
                tensor = values(bf.rank(), (bf.rank() % 3, *tail), dtype)
                result = bf.allgather(tensor)
                expected = torch.cat([values(rank, (rank % 3, *tail), dtype) for rank in range(bf.size())])
                self.assertTrue(torch.equal(result, expected), dtype)
        self.assertEqual(bf.allgather(torch.tensor(float(bf.rank()))).tolist(), list(range(bf.size())))

    def test_local_allreduce(self):
        first = bf.machine_rank() * bf.local_size()
        expected = sum(values(rank) for rank in range(first, first + bf.local_size())) / bf.local_size()
        self.assertTrue(torch.allclose(bf.allreduce(values(bf.rank()), is_hierarchical_local=True), expected))


class Neighbors(unittest.TestCase):
    def test_static(self):
        for make in TOPOLOGIES:
            for is_weighted in (False, True):
                bf.set_topology(make(bf.size()), is_weighted)
                own, others = bf.GetRecvWeights(bf.load_topology(), bf.rank())
                if not is_weighted:
                    own = 1 / (len(others) + 1)
                    others = dict.fromkeys(others, own)
                for dtype in FLOATING:
                    for shape in [(), (0,), (7, 3), (300, 100)]:
                        tensor = values(bf.rank(), shape, dtype)
                        expected = own * values(bf.rank(), shape) + sum(
                            weight * values(rank, shape) for rank, weight in others.items())
                        result = bf.neighbor_allreduce(tensor, name="static")
                        bound = {torch.float16: 2e-2, torch.bfloat16: 2e-1, torch.float32: 1e-5, torch.float64: 1e-14}[dtype]
                        self.assertTrue(torch.allclose(result.double(), expected, rtol=0, atol=bound))
                        self.assertTrue(torch.equal(tensor, values(bf.rank(), shape, dtype)))
                        self.assertIs(bf.neighbor_allreduce_(tensor), tensor)
                        self.assertTrue(torch.equal(tensor, result))

    def test_double_is_double(self):
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        tiny = torch.full((23,), 2.0**-256, dtype=torch.float64)
        self.assertLess((bf.neighbor_allreduce(tiny) - tiny).abs().max(), 2.0**-300)

    def test_weights_by_call(self):
        if bf.size() < 2:
            return  # it needs neighbors
        size, rank = bf.size(), bf.rank()
        bf.set_topology(bf.ExponentialGraph(size))
        before, after = (rank - 1) % size, (rank + 1) % size
        mine, left, right = values(rank), values(before), values(after)
        for check in (True, False):
            # Averages to the right have weights at both sides. Moves against the edges of the topology give a list.
            pushed = bf.neighbor_allreduce(mine, self_weight=0.25, src_weights={before: 0.5}, dst_weights={after: 3.0},
                                           enable_topo_check=check)
            self.assertTrue(torch.allclose(pushed, 0.25 * mine + 1.5 * left))
            moved = bf.neighbor_allreduce(mine, self_weight=0.0, src_weights={after: 1.0}, dst_weights=[before],
                                          enable_topo_check=check)
            self.assertTrue(torch.equal(moved, right))
        # Only one side is given; the other is found.
        pulled = bf.neighbor_allreduce(mine, self_weight=1.0, src_weights={after: 2.0})
        self.assertTrue(torch.allclose(pulled, mine + 2 * right))
        pushed = bf.neighbor_allreduce(mine, self_weight=1.0, dst_weights={after: 2.0})
        self.assertTrue(torch.allclose(pushed, mine + 2 * left))
        # No neighbors at all.
        self.assertTrue(torch.equal(bf.neighbor_allreduce(mine, self_weight=2.0, src_weights={}, dst_weights=[]), 2 * mine))

    def test_weights_that_do_not_match_are_errors_on_all_ranks(self):
        if bf.size() < 3:
            return  # it needs three ranks
        size, rank = bf.size(), bf.rank()
        mine = values(rank)
        with self.assertRaisesRegex(ValueError, "receives from|sends to"):
            bf.neighbor_allreduce(mine, self_weight=0.0, src_weights={(rank - 1) % size: 1.0}, dst_weights=[(rank + 2) % size])
        with self.assertRaises(ValueError):
            bf.neighbor_allreduce(mine, self_weight=0.0, src_weights={}, dst_weights=[size if rank == 1 else (rank + 1) % size])
        for arguments in [{"self_weight": 1.0}, {"src_weights": {0: 1.0}}, {"dst_weights": [0]}]:
            with self.assertRaises(ValueError):
                bf.neighbor_allreduce(mine, **arguments)
        # The next call works.
        result = bf.neighbor_allreduce(mine, self_weight=0.0, src_weights={(rank - 1) % size: 1.0}, dst_weights=[(rank + 1) % size])
        self.assertTrue(torch.equal(result, values((rank - 1) % size)))

    def test_some_neighbors_of_the_topology_without_a_check(self):
        """The other neighbors take part with weight 0, and the next calls match."""
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        sources, destinations = bf.in_neighbor_ranks(), bf.out_neighbor_ranks()
        for step in range(3):
            mine = values(bf.rank() + step)
            for weights in [{"src_weights": {source: 2.0 for source in sources[:1]}}, {"dst_weights": {}}]:
                result = bf.neighbor_allreduce(mine, self_weight=1.0, enable_topo_check=False, **weights)
                expected = mine + sum(2 * values(source + step) for source in sources[:1] if "src_weights" in weights)
                self.assertTrue(torch.allclose(result, expected))
            expected = sum(values(rank + step) for rank in [bf.rank(), *sources]) / (len(sources) + 1)
            self.assertTrue(torch.allclose(bf.neighbor_allreduce(mine), expected))
        strangers = set(range(bf.size())) - {bf.rank(), *sources}
        for stranger in strangers:
            with self.assertRaises(ValueError):
                bf.neighbor_allreduce(values(0), self_weight=1.0, src_weights={stranger: 1.0}, enable_topo_check=False)

    def test_fifty_at_once(self):
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        sources = bf.in_neighbor_ranks()
        tensors = [values(bf.rank() + i, (1 + i % 4 * 5000,)) for i in range(50)]
        handles = [bf.neighbor_allreduce_nonblocking(tensor, name=f"index {i}") for i, tensor in enumerate(tensors)]
        for i in sorted(range(50), key=lambda i: (i * 7 + bf.rank() * 13) % 50):
            while i % 10 == 0 and not bf.poll(handles[i]):
                time.sleep(0.001)
            expected = sum(values(rank + i, tensors[i].shape) for rank in [bf.rank(), *sources]) / (len(sources) + 1)
            self.assertTrue(torch.allclose(bf.synchronize(handles[i]), expected))
            with self.assertRaises(ValueError):
                bf.poll(handles[i])

    def test_gather(self):
        bf.set_topology(bf.ExponentialGraph(bf.size()))
        for dtype in EVERY:
            result = bf.neighbor_allgather(values(bf.rank(), (bf.rank() + 1, 3), dtype))
            expected = [values(rank, (rank + 1, 3), dtype) for rank in bf.in_neighbor_ranks()]
            self.assertTrue(torch.equal(result, torch.cat(expected) if expected else torch.empty(0, 3, dtype=dtype)))
        if bf.size() > 1:
            size, rank = bf.size(), bf.rank()
            moved = bf.neighbor_allgather(values(rank), src_ranks=[(rank + 1) % size], dst_ranks=[(rank - 1) % size])
            self.assertTrue(torch.equal(moved, values((rank + 1) % size)))
            others = [(rank - distance) % size for distance in range(1, size)]
            for sources in (others, others[::-1], sorted(others, reverse=True)):
                gathered = bf.neighbor_allgather(values(rank), src_ranks=sources, dst_ranks=others)
                self.assertTrue(torch.equal(gathered, torch.cat([values(source) for source in sources])), sources)

    def test_gossip(self):
        if bf.size() % 2 == 0:
            other = bf.rank() ^ 1
            self.assertTrue(torch.allclose(bf.pair_gossip(values(bf.rank()), other), (values(bf.rank()) + values(other)) / 2))


class Machines(unittest.TestCase):
    def setUp(self):
        bf.set_machine_topology(bf.ExponentialGraph(bf.machine_size()))

    def mean(self, machine, shape):
        first = machine * bf.local_size()
        return sum(values(rank, shape) for rank in range(first, first + bf.local_size())) / bf.local_size()

    def test_static(self):
        sources = bf.in_neighbor_machine_ranks()
        for shape in [(), (0,), (7, 3), (300, 101)]:
            expected = sum(self.mean(machine, shape) for machine in [bf.machine_rank(), *sources]) / (len(sources) + 1)
            tensor = values(bf.rank(), shape)
            result = bf.hierarchical_neighbor_allreduce(tensor, name="machines")
            self.assertTrue(torch.allclose(result, expected))
            self.assertIs(bf.hierarchical_neighbor_allreduce_(tensor), tensor)
            self.assertTrue(torch.equal(tensor, result))

    def test_weights_by_call(self):
        if bf.machine_size() < 2:
            return  # it needs machines
        count, own = bf.machine_size(), bf.machine_rank()
        for check in (False, True):
            result = bf.hierarchical_neighbor_allreduce(
                values(bf.rank()), self_weight=0.5, src_machine_weights={(own + 1) % count: 0.5},
                dst_machine_weights={(own - 1) % count: 2.0}, enable_topo_check=check)
            self.assertTrue(torch.allclose(result, 0.5 * self.mean(own, (7, 3)) + self.mean((own + 1) % count, (7, 3))))

    def test_ranks_of_a_machine_that_disagree_are_errors_on_all_ranks(self):
        if bf.local_size() < 2 or bf.machine_size() < 2:
            return  # it needs machines of several ranks
        other = (bf.machine_rank() + 1) % bf.machine_size()
        mine = {} if bf.rank() == 1 else {other: 1.0}
        with self.assertRaises(ValueError):
            bf.hierarchical_neighbor_allreduce(values(0), self_weight=1.0, src_machine_weights=mine,
                                               dst_machine_weights=mine, enable_topo_check=True)
        bf.hierarchical_neighbor_allreduce(values(0))

    def test_unnamed_ones_of_different_sizes(self):
        sources = bf.in_neighbor_machine_ranks()
        shapes = [(3,), (30000,)] * 10
        handles = [bf.hierarchical_neighbor_allreduce_nonblocking(values(bf.rank(), shape)) for shape in shapes]
        for shape, handle in zip(shapes, handles):
            mean = sum(self.mean(machine, shape) for machine in [bf.machine_rank(), *sources]) / (len(sources) + 1)
            self.assertTrue(torch.allclose(bf.synchronize(handle), mean))

    def test_fifty_at_once(self):
        sources = bf.in_neighbor_machine_ranks()
        handles = [bf.hierarchical_neighbor_allreduce_nonblocking(values(bf.rank()) + i, name=f"{i}") for i in range(50)]
        mean = sum(self.mean(machine, (7, 3)) for machine in [bf.machine_rank(), *sources]) / (len(sources) + 1)
        for i in reversed(range(50)):
            self.assertTrue(torch.allclose(bf.synchronize(handles[i]), mean + i))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
