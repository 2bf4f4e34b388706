"""Node graphs: who sends to whom, with which weights, and how fast that mixes.

    g = dunlin.graph.exponential(8)
    g.in_neighbors(0), g.spectral_gap()

Graphs are values: made the same on all ranks, they need no communication.

One-peer graphs change from step to step. Their generators never end; each step is (those that the node sends to,
those that it receives from), of which all nodes' generators are at one at the same step:

    for send_to, receive_from in dunlin.graph.one_peer_exponential(dunlin.size(), dunlin.rank()):
        weight = 1 / (len(receive_from) + 1)
        x = dunlin.neighbor_average(x, {rank: weight for rank in receive_from}, send_to, weight)
"""

import itertools

from dunlin import _dunlin

__all__ = ["Graph", "bidirectional_ring", "chain", "complete", "exponential", "families", "from_edges", "from_networkx",
           "hypercube", "inner_outer_exponential", "inner_outer_ring", "make", "mesh", "one_peer",
           "one_peer_exponential", "random_regular", "ring", "root_expander", "star", "torus"]


class Graph:
    """A directed graph over the nodes 0 .. n - 1, without self-loops. Immutable.

    `weighting` is "uniform" (a node gives itself and each in-neighbor 1 / (in-degree + 1)) or "metropolis" (for
    undirected graphs; always doubly stochastic).
    """

    def __init__(self, made):
        self._made = made

    @property
    def nodes(self):
        """The number of nodes."""
        return self._made.nodes

    @property
    def spec(self):
        """The text that make() made it from; "edges" for others."""
        return self._made.spec

    def edges(self):
        """All pairs (from, to), ascending."""
        return self._made.edges()

    def edge_count(self):
        """The number of edges."""
        return self._made.edge_count()

    def has_edge(self, source, target):
        """Whether source sends to target."""
        return self._made.has_edge(source, target)

    def out_neighbors(self, node):
        """Those that `node` sends to, ascending."""
        return self._made.out_neighbors(node)

    def in_neighbors(self, node):
        """Those that `node` receives from, ascending."""
        return self._made.in_neighbors(node)

    def weights(self, node, weighting="uniform"):
        """(own weight, {in-neighbor: weight}) of a node; they add up to 1."""
        return self._made.weights(node, weighting)

    def spectrum(self, weighting="uniform"):
        """The mixing matrix's largest singular values and what is known of them: a dictionary with sigma_1, sigma_2,
        gap, is_doubly_stochastic, method, error_bound and converged."""
        return self._made.spectrum(weighting)

    def spectral_gap(self, weighting="uniform"):
        """1 - sigma_2: a reduce brings the nodes' models nearer to their mean by the factor sigma_2 at the least, where
        the weights are doubly stochastic."""
        return self._made.spectrum(weighting)["gap"]

    def is_undirected(self):
        """Whether every edge has its reverse."""
        return self._made.is_undirected()

    def is_strongly_connected(self):
        """Whether every node's model reaches every other node."""
        return self._made.is_strongly_connected()

    def diameter(self):
        """The largest distance between two nodes as (lower bound, upper bound); None where it isn't connected."""
        return self._made.diameter()

    def to_networkx(self, weighting=None):
        """A networkx.DiGraph; with a weighting, edges have its weights as "weight", and nodes their own as "self"."""
        import networkx

        result = networkx.DiGraph()
        result.add_nodes_from(range(self.nodes))
        result.add_edges_from(self.edges())
        if weighting is not None:
            for node in range(self.nodes):
                own, others = self.weights(node, weighting)
                result.nodes[node]["self"] = own
                for source, weight in others.items():
                    result.edges[source, node]["weight"] = weight
        return result

    def __eq__(self, other):
        if not isinstance(other, Graph):
            return NotImplemented
        return self.nodes == other.nodes and self.edges() == other.edges()

    def __hash__(self):
        return hash((self.nodes, self.edge_count()))

    def __repr__(self):
        return f"<dunlin.graph.Graph {self.spec}: {self.nodes} nodes, {self.edge_count()} edges>"


def make(spec, nodes=0):
    """The graph of a text as dunlin-graph takes it: "ring", "torus:4x2", "random-regular:3:seed=7", "file:PATH".

    nodes: how many; 0 where the text says it. InvalidArgumentError says what is wrong, and which names there are.
    """
    return Graph(_dunlin.Graph.make(spec, nodes))


def families():
    """[(name, how to write it, what it is)] of all that make() knows."""
    return _dunlin.graph_families()


def from_edges(nodes, edges):
    """The graph of pairs (from, to). Duplicates collapse, self-loops are dropped."""
    return Graph(_dunlin.Graph.from_edges(nodes, list(edges)))


def from_networkx(graph):
    """The graph of a networkx.DiGraph, or of a Graph, whose edges count in both directions.

    Its nodes are the numbers 0 .. n - 1, else InvalidArgumentError. Attributes are not kept.
    """
    from dunlin.errors import InvalidArgumentError

    count = graph.number_of_nodes()
    if set(graph.nodes) != set(range(count)):
        raise InvalidArgumentError("the nodes have to be the numbers 0 .. n - 1", "invalid_argument")
    edges = [(source, target) for source, target in graph.edges()]
    if not graph.is_directed():
        edges += [(target, source) for source, target in edges]
    return from_edges(count, edges)


def complete(nodes):
    """Everyone sends to everyone."""
    return make("complete", nodes)


def star(nodes):
    """Node 0 exchanges with every other node."""
    return make("star", nodes)


def ring(nodes):
    """i -> i + 1."""
    return make("ring", nodes)


def bidirectional_ring(nodes):
    """i <-> i + 1."""
    return make("bidirectional-ring", nodes)


def chain(nodes):
    """A path: i <-> i + 1 without the closing edge."""
    return make("chain", nodes)


def root_expander(nodes):
    """i -> i + 1 and i -> i + floor(sqrt(n))."""
    return make("root-expander", nodes)


def exponential(nodes):
    """i -> i + 2^k for every 2^k below n."""
    return make("exponential", nodes)


def mesh(rows, columns):
    """A grid; node = row * columns + column."""
    return make(f"mesh:{rows}x{columns}")


def torus(rows, columns):
    """A grid whose rows and columns are rings."""
    return make(f"torus:{rows}x{columns}")


def hypercube(nodes):
    """i <-> i with one bit flipped; the number of nodes is a power of two."""
    return make("hypercube", nodes)


def random_regular(nodes, degree, seed=1):
    """A random connected undirected graph in which every node has `degree` neighbors; the same for the same seed."""
    return make(f"random-regular:{degree}:seed={seed}", nodes)


def one_peer(graph, node, step=0):
    """Yields the peers of a node that goes through its out-neighbors in the graph, clockwise, one per step.

    In a step, several nodes may send to the same one, or none.
    """
    return _steps(_dunlin.one_peer, (graph._made, node), step)


def one_peer_exponential(nodes, node, step=0):
    """Yields the peers of a node at the distances 1, 2, 4, ... below `nodes`, one per step."""
    return _steps(_dunlin.one_peer_exponential, (nodes, node), step)


def inner_outer_ring(nodes, per_machine, node, step=0):
    """Yields peers of whom one of each machine, in turn, is in the next machine; the others form rings within theirs.

    Nodes of a machine are neighbors by number. InvalidArgumentError unless whole machines make up the nodes, and for
    several machines of two nodes.
    """
    return _steps(_dunlin.inner_outer_ring, (nodes, per_machine, node), step)


def inner_outer_exponential(nodes, per_machine, node, step=0):
    """The same with the distances of exponential graphs, between machines and within them."""
    return _steps(_dunlin.inner_outer_exponential, (nodes, per_machine, node), step)


def _steps(peers_of, arguments, step):
    peers_of(*arguments, step)  # raises here what is wrong, and not at the first step
    return (peers_of(*arguments, number) for number in itertools.count(step))
