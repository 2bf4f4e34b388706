"""Node graphs: which node sends to which, with which weights, and how fast averages over them converge.

    g = dunlin.graph.exponential(8)
    g.in_neighbors(0), g.spectral_gap()

Graphs are values: ranks that make the same graph need no communication.

One-peer graphs change from step to step. Their generators never end. Each step is (nodes that the node sends to, nodes
that it receives from), and the nodes' generators match at the same step:

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
        """The text that make() made it from; "edges" for other graphs."""
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
        """The nodes that `node` sends to, ascending."""
        return self._made.out_neighbors(node)

    def in_neighbors(self, node):
        """The nodes that `node` receives from, ascending."""
        return self._made.in_neighbors(node)

    def weights(self, node, weighting="uniform"):
        """(own weight, {in-neighbor: weight}) of a node. The weights add up to 1."""
        return self._made.weights(node, weighting)

    def spectrum(self, weighting="uniform"):
        """The mixing matrix's largest singular values: a dictionary with sigma_1, sigma_2, gap (1 - sigma_2),
        is_doubly_stochastic, method, error_bound and converged."""
        return self._made.spectrum(weighting)

    def spectral_gap(self, weighting="uniform"):
        """1 - sigma_2. If the weights are doubly stochastic, a reduce multiplies the distance of the nodes' models from
        their mean by sigma_2 at most."""
        return self._made.spectrum(weighting)["gap"]

    def is_undirected(self):
        """Whether every edge has its reverse."""
        return self._made.is_undirected()

    def is_strongly_connected(self):
        """Whether every node's model reaches every other node."""
        return self._made.is_strongly_connected()

    def diameter(self):
        """The largest distance between two nodes as (lower bound, upper bound); None if it isn't strongly connected."""
        return self._made.diameter()

    def to_networkx(self, weighting=None):
        """A networkx.DiGraph. With a weighting, edges have its weights as "weight", and nodes their own as "self"."""
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
    """The graph that a text describes: "ring", "torus:4x2", "random-regular:3:seed=7", "file:PATH" (as dunlin-graph).

    nodes: the number of nodes; 0 if the text gives it. InvalidArgumentError says what is wrong, and lists the names.
    """
    return Graph(_dunlin.Graph.make(spec, nodes))


def families():
    """[(name, how to write it, what it is)] of all graphs that make() knows."""
    return _dunlin.graph_families()


def from_edges(nodes, edges):
    """The graph of pairs (from, to). Duplicates collapse, self-loops are dropped."""
    return Graph(_dunlin.Graph.from_edges(nodes, list(edges)))


def from_networkx(graph):
    """The graph of a networkx.DiGraph, or of a networkx.Graph, whose edges count in both directions.

    Raises InvalidArgumentError unless its nodes are the numbers 0 .. n - 1. Attributes are not kept.
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
    """Every node sends to every other node."""
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
    """Yields a node's peers: it sends to its out-neighbors in the graph in turn, clockwise, one per step.

    In a step, a node may receive from several nodes, or from none.
    """
    return _steps(_dunlin.one_peer, (graph._made, node), step)


def one_peer_exponential(nodes, node, step=0):
    """Yields a node's peers, at the distances 1, 2, 4, ... below `nodes`, one per step."""
    return _steps(_dunlin.one_peer_exponential, (nodes, node), step)


def inner_outer_ring(nodes, per_machine, node, step=0):
    """Yields a node's peers. In each step one node of each machine, in turn, sends to the next machine, and the others
    form a ring within their machine.

    Each `per_machine` consecutive nodes are a machine. InvalidArgumentError if `per_machine` doesn't divide the number
    of nodes, and for several machines of two nodes.
    """
    return _steps(_dunlin.inner_outer_ring, (nodes, per_machine, node), step)


def inner_outer_exponential(nodes, per_machine, node, step=0):
    """inner_outer_ring() with the distances of exponential graphs, between machines and within them."""
    return _steps(_dunlin.inner_outer_exponential, (nodes, per_machine, node), step)


def _steps(peers_of, arguments, step):
    peers_of(*arguments, step)  # raises errors here, and not at the first step
    return (peers_of(*arguments, number) for number in itertools.count(step))
