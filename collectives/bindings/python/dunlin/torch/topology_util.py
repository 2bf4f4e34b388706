"""Node graphs as networkx.DiGraph, with BlueFog's names.

An edge (i, j) says that i sends to j, and its "weight" what j gives it; (j, j) has what j gives itself. Weights of the
edges into a node add up to 1.
"""

import numpy
import networkx

from dunlin import graph as _graph

__all__ = ["ExponentialGraph", "ExponentialTwoGraph", "FullyConnectedGraph", "GetDynamicOnePeerSendRecvRanks",
           "GetExp2DynamicSendRecvMachineRanks", "GetInnerOuterExpo2DynamicSendRecvRanks",
           "GetInnerOuterRingDynamicSendRecvRanks", "GetRecvWeights", "GetSendWeights", "InnerOuterExpo2Graph",
           "InnerOuterRingGraph", "IsRegularGraph", "IsTopologyEquivalent", "MeshGrid2DGraph", "RingGraph",
           "StarGraph", "SymmetricExponentialGraph"]


def ExponentialTwoGraph(size):
    """i sends to i + 1, i + 2, i + 4, ..."""
    return ExponentialGraph(size, 2)


def ExponentialGraph(size, base=2):
    """i sends to i + base**k, for all powers below `size`."""
    _check_size(size)
    return _circulant(size, [distance for distance in range(1, size) if _is_power(distance, base)])


def SymmetricExponentialGraph(size, base=4):
    """i sends to i + base**k up to half way round, and back in the same distances."""
    _check_size(size)
    return _circulant(size, [distance for distance in range(1, size)
                             if _is_power(distance if distance <= size // 2 else size - distance, base)])


def RingGraph(size, connect_style=0):
    """A ring. connect_style: 0 both ways, 1 to the left (i - 1), 2 to the right (i + 1)."""
    _check_size(size)
    if connect_style not in (0, 1, 2):
        raise ValueError(f"connect_style {connect_style}: 0 (both ways), 1 (left) or 2 (right)")
    return _circulant(size, {0: [1, size - 1], 1: [size - 1], 2: [1]}[connect_style])


def FullyConnectedGraph(size):
    """Everyone sends to everyone."""
    _check_size(size)
    return _circulant(size, range(1, size))


def StarGraph(size, center_rank=0):
    """Everyone exchanges with the center. Each edge weighs 1 / size."""
    _check_size(size)
    if not 0 <= center_rank < size:
        raise ValueError(f"center_rank {center_rank} in a graph of {size}")
    weights = numpy.diag(numpy.full(size, 1 - 1 / size))
    weights[center_rank, :] = weights[:, center_rank] = 1 / size
    return _from_weights(weights)


def MeshGrid2DGraph(size, shape=None):
    """A grid of shape (rows, columns), as square as can be where none is given, with Metropolis-Hastings weights."""
    _check_size(size)
    if shape is None:
        rows = max(divisor for divisor in range(1, int(size**0.5) + 1) if size % divisor == 0)
        shape = (rows, size // rows)
    rows, columns = shape
    if rows * columns != size:
        raise ValueError(f"a grid of {rows} x {columns} doesn't have {size} nodes")
    weights = numpy.zeros((size, size))
    made = _graph.mesh(rows, columns)
    for node in range(size):
        weights[node, node], others = made.weights(node, "metropolis")
        for source, weight in others.items():
            weights[source, node] = weight
    return _from_weights(weights)


def InnerOuterRingGraph(world_size, local_size):
    """Everyone within a machine, and the ranks of one place in a ring of the machines."""
    return _inner_outer(world_size, local_size, lambda distance: distance == 1)


def InnerOuterExpo2Graph(world_size, local_size):
    """Everyone within a machine, and the ranks of one place in an exponential graph of the machines."""
    return _inner_outer(world_size, local_size, lambda distance: _is_power(distance, 2))


def GetRecvWeights(topo, rank):
    """(own weight, {in-neighbor: weight}) of a rank."""
    return _weights(topo, rank, ((source, data) for source, _, data in topo.in_edges(rank, data=True)))


def GetSendWeights(topo, rank):
    """(own weight, {out-neighbor: weight}) of a rank: what those give it."""
    return _weights(topo, rank, ((target, data) for _, target, data in topo.out_edges(rank, data=True)))


def IsTopologyEquivalent(topo1, topo2):
    """Whether both have the same edges with the same weights. Nodes aren't renamed; None is like nothing."""
    if topo1 is None or topo2 is None or set(topo1.nodes) != set(topo2.nodes):
        return False
    edges1, edges2 = ({(source, target): data.get("weight", 1.0) for source, target, data in topo.edges(data=True)}
                      for topo in (topo1, topo2))
    return edges1 == edges2


def IsRegularGraph(topo):
    """Whether all nodes have the same degree."""
    return len({degree for _, degree in topo.degree()}) <= 1


def GetDynamicOnePeerSendRecvRanks(topo, self_rank):
    """Step by step ([rank to send to], [ranks to receive from]): everyone goes round its out-neighbors."""
    return _steps(_graph.one_peer(_graph.from_networkx(topo), self_rank))


def GetExp2DynamicSendRecvMachineRanks(world_size, local_size, self_rank, local_rank):
    """Step by step ([machine to send to], [machine to receive from]): the one-peer exponential graph of the machines."""
    _check_machines(world_size, local_size)
    if self_rank % local_size != local_rank:
        raise ValueError(f"rank {self_rank} has place {self_rank % local_size} in its machine, not {local_rank}")
    return _steps(_graph.one_peer_exponential(world_size // local_size, self_rank // local_size))


def GetInnerOuterRingDynamicSendRecvRanks(world_size, local_size, self_rank):
    """Step by step ([rank to send to], [rank to receive from]): one rank of each machine goes to the next machine, and
    the others form a ring within theirs."""
    _check_machines(world_size, local_size)
    return _steps(_graph.inner_outer_ring(world_size, local_size, self_rank))


def GetInnerOuterExpo2DynamicSendRecvRanks(world_size, local_size, self_rank):
    """The same in the distances of exponential graphs, between machines and within them."""
    _check_machines(world_size, local_size)
    return _steps(_graph.inner_outer_exponential(world_size, local_size, self_rank))


def _steps(peers):
    return ((list(send), list(receive)) for send, receive in peers)


def _check_size(size):
    if size < 1:
        raise ValueError(f"a graph of {size} nodes")


def _check_machines(world_size, local_size):
    if local_size < 1 or world_size % local_size != 0:
        raise ValueError(f"{world_size} ranks are no whole machines of {local_size}")


def _is_power(number, base):
    if base < 2:
        raise ValueError(f"base {base}: at least 2")
    while number > 1 and number % base == 0:
        number //= base
    return number == 1


def _circulant(size, distances):
    """Each node gives itself and those at the distances the same."""
    distances = {distance % size for distance in distances} | {0}
    weights = numpy.zeros((size, size))
    for node in range(size):
        for distance in distances:
            weights[node, (node + distance) % size] = 1 / len(distances)
    return _from_weights(weights)


def _inner_outer(world_size, local_size, is_linked):
    _check_machines(world_size, local_size)
    machines = world_size // local_size
    weights = numpy.zeros((world_size, world_size))
    for source in range(world_size):
        for target in range(world_size):
            distance = (target // local_size - source // local_size) % machines
            same_place = source % local_size == target % local_size
            weights[source, target] = distance == 0 or (same_place and is_linked(distance))
    return _from_weights(weights / weights.sum(axis=0))


def _from_weights(weights):
    return networkx.from_numpy_array(weights, create_using=networkx.DiGraph)


def _weights(topo, rank, edges):
    weights = {other: float(data.get("weight", 1.0)) for other, data in edges}
    own = weights.pop(rank, 0.0)
    return own, dict(sorted(weights.items()))
