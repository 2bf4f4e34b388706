"""dunlin.graph makes the graphs of collectives/graph, and converts them to networkx and back."""

import itertools
import unittest

import dunlin
from dunlin import graph

try:
    import networkx
except ImportError:
    networkx = None


class GraphTest(unittest.TestCase):
    def test_neighbors(self):
        self.assertEqual(graph.ring(4).edges(), [(0, 1), (1, 2), (2, 3), (3, 0)])
        exponential = graph.exponential(8)
        self.assertEqual(exponential.out_neighbors(0), [1, 2, 4])
        self.assertEqual(exponential.in_neighbors(0), [4, 6, 7])
        self.assertEqual(graph.root_expander(9).out_neighbors(8), [0, 2])
        self.assertEqual(graph.mesh(2, 3).out_neighbors(4), [1, 3, 5])
        self.assertEqual(graph.star(5).in_neighbors(0), [1, 2, 3, 4])

    def test_families_are_complete(self):
        for name, _, _ in graph.families():
            if name == "file":
                continue
            spec = name + {"mesh": ":2x4", "torus": ":2x4", "random-regular": ":3"}.get(name, "")
            made = graph.make(spec, 8)
            self.assertEqual(made.nodes, 8)
            self.assertTrue(made.is_strongly_connected(), spec)
            function = getattr(graph, name.replace("-", "_"))
            arguments = {"mesh": (2, 4), "torus": (2, 4), "random-regular": (8, 3)}.get(name, (8,))
            self.assertEqual(function(*arguments), made)

    def test_weights_and_gap(self):
        ring = graph.ring(5)
        self.assertEqual(ring.weights(0), (0.5, {4: 0.5}))
        own, others = graph.star(5).weights(1, "metropolis")
        self.assertAlmostEqual(own + sum(others.values()), 1)
        self.assertAlmostEqual(graph.complete(6).spectral_gap(), 1)
        self.assertAlmostEqual(graph.exponential(8).spectral_gap(), 0.5)
        self.assertTrue(graph.hypercube(8).spectrum("metropolis")["is_doubly_stochastic"])
        self.assertEqual(graph.chain(10).diameter(), (9, 9))
        self.assertIsNone(graph.from_edges(3, [(0, 1)]).diameter())

    def test_graphs_that_change(self):
        def steps(make, count):
            """The peers of all nodes in each of the first steps."""
            return zip(*(itertools.islice(make(node), count) for node in range(12)))

        exponential = graph.exponential(12)
        for make in (lambda node: graph.one_peer(exponential, node), lambda node: graph.one_peer_exponential(12, node),
                     lambda node: graph.inner_outer_ring(12, 4, node),
                     lambda node: graph.inner_outer_exponential(12, 4, node)):
            for peers in steps(make, 12):
                sent = {(node, to) for node in range(12) for to in peers[node][0]}
                self.assertEqual(sent, {(source, node) for node in range(12) for source in peers[node][1]})
                self.assertEqual(len(sent), 12)
        self.assertEqual([to for [to], _ in itertools.islice(graph.one_peer_exponential(12, 3, step=1), 3)], [5, 7, 11])
        with self.assertRaises(dunlin.OutOfRangeError):
            graph.one_peer_exponential(12, 12)
        with self.assertRaises(ValueError):
            graph.inner_outer_ring(12, 5, 0)

    def test_mistakes(self):
        with self.assertRaisesRegex(ValueError, "known are complete"):
            graph.make("no-such", 4)
        with self.assertRaisesRegex(dunlin.OutOfRangeError, "node 4 of 4"):
            graph.ring(4).in_neighbors(4)
        with self.assertRaises(ValueError):
            graph.ring(4).weights(0, "metropolis")
        with self.assertRaises(dunlin.OutOfRangeError):
            graph.from_edges(2, [(0, 2)])

    @unittest.skipIf(networkx is None, "networkx is not installed")
    def test_networkx(self):
        made = graph.root_expander(10)
        there = made.to_networkx("uniform")
        self.assertAlmostEqual(there.edges[0, 1]["weight"], made.weights(1)[1][0])
        self.assertAlmostEqual(there.nodes[1]["self"], made.weights(1)[0])
        self.assertEqual(graph.from_networkx(there), made)
        self.assertEqual(graph.from_networkx(networkx.cycle_graph(5)), graph.bidirectional_ring(5))
        with self.assertRaisesRegex(ValueError, "numbers 0"):
            graph.from_networkx(networkx.DiGraph([("a", "b")]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
