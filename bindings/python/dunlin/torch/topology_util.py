"""Node graphs as networkx.DiGraph, with BlueFog's names.

An edge (i, j) means that i sends to j. Its "weight" is the weight of i's tensor at j; that of (j, j) is the weight of
j's own tensor. The weights of the edges into a node add up to 1.
"""

import numpy

from dunlin import graph as _graph

__all__ = ["ExponentialGraph", "ExponentialTwoGraph", "FullyConnectedGraph", "GetDynamicOnePeerSendRecvRanks",
           "GetExp2DynamicSendRecvMachineRanks", "GetInnerOuterExpo2DynamicSendRecvRanks",
           "GetInnerOuterRingDynamicSendRecvRanks", "GetRecvWeights", "GetSendWeights", "InnerOuterExpo2Graph",
           "InnerOuterRingGraph", "IsRegularGraph", "IsTopologyEquivalent", "MeshGrid2DGraph", "RingGraph",
           "StarGraph", "SymmetricExponentialGraph", "isPowerOf"]


def ExponentialTwoGraph(size):
    """i sends to i + 1, i + 2, i + 4, ..."""
    return ExponentialGraph(size, 2)


def ExponentialGraph(size, base=2):
    """i sends to i + base**k, for all powers below `size`."""
    return _from_weights(exponential_weights(size, base))


def exponential_weights(size, base=2):
    """The weights of ExponentialGraph(), as a matrix; networkx isn't needed for it."""
    _check_size(size)
    return _circulant_weights(size, [distance for distance in range(1, size) if _is_power(distance, base)])


def SymmetricExponentialGraph(size, base=4):
    """i sends to i + base**k up to half of the ring, and to the same distances in the other direction."""
    _check_size(size)
    return _circulant(size, [distance for distance in range(1, size)
                             if _is_power(distance if distance <= size // 2 else size - distance, base)])


def RingGraph(size, connect_style=0):
    """A ring. connect_style: 0 in both directions, 1 to the left (i - 1), 2 to the right (i + 1)."""
    _check_size(size)
    if connect_style not in (0, 1, 2):
        raise ValueError(f"connect_style {connect_style}: it has to be 0 (both directions), 1 (left) or 2 (right)")
    return _circulant(size, {0: [1, size - 1], 1: [size - 1], 2: [1]}[connect_style])


def FullyConnectedGraph(size):
    """Every node sends to every other node."""
    _check_size(size)
    return _circulant(size, range(1, size))


def StarGraph(size, center_rank=0):
    """Every node exchanges with the center. Each edge has the weight 1 / size."""
    _check_size(size)
    if not 0 <= center_rank < size:
        raise ValueError(f"center_rank {center_rank} in a graph of {size} nodes")
    weights = numpy.diag(numpy.full(size, 1 - 1 / size))
    weights[center_rank, :] = weights[:, center_rank] = 1 / size
    return _from_weights(weights)


def MeshGrid2DGraph(size, shape=None):
    """A grid of shape (rows, columns), by default as square as possible, with Metropolis-Hastings weights."""
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
    """All ranks within a machine exchange. Ranks with the same local rank form a ring of the machines."""
    return _inner_outer(world_size, local_size, lambda distance: distance == 1)


def InnerOuterExpo2Graph(world_size, local_size):
    """All ranks within a machine exchange. Ranks with the same local rank form an exponential graph of the machines."""
    return _inner_outer(world_size, local_size, lambda distance: _is_power(distance, 2))


def GetRecvWeights(topo, rank):
    """(own weight, {in-neighbor: weight}) of a rank."""
    return _weights(topo, rank, ((source, data) for source, _, data in topo.in_edges(rank, data=True)))


def GetSendWeights(topo, rank):
    """(own weight, {out-neighbor: weight of this rank's tensor there}) of a rank."""
    return _weights(topo, rank, ((target, data) for _, target, data in topo.out_edges(rank, data=True)))


def isPowerOf(x, base):
    """Whether x is a power of base: 1, base, base**2, ..."""
    if x < 1:
        raise ValueError(f"{x}: it has to be at least 1")
    return _is_power(x, base)


def IsTopologyEquivalent(topo1, topo2):
    """Whether both have the same nodes and the same edges with the same weights; False for None."""
    if topo1 is None or topo2 is None or set(topo1.nodes) != set(topo2.nodes):
        return False
    edges1, edges2 = ({(source, target): data.get("weight", 1.0) for source, target, data in topo.edges(data=True)}
                      for topo in (topo1, topo2))
    return edges1 == edges2


def IsRegularGraph(topo):
    """Whether all nodes have the same degree."""
    return len({degree for _, degree in topo.degree()}) <= 1


def GetDynamicOnePeerSendRecvRanks(topo, self_rank):
    """Yields ([rank to send to], [ranks to receive from]) per step: each rank sends to its out-neighbors in turn."""
    return _steps(_graph.one_peer(_graph.from_networkx(topo), self_rank))


def GetExp2DynamicSendRecvMachineRanks(world_size, local_size, self_rank, local_rank):
    """Yields ([machine to send to], [machine to receive from]) per step: the machines' one-peer exponential graph."""
    _check_machines(world_size, local_size)
    if self_rank % local_size != local_rank:
        raise ValueError(f"rank {self_rank} has the local rank {self_rank % local_size}, not {local_rank}")
    return _steps(_graph.one_peer_exponential(world_size // local_size, self_rank // local_size))


def GetInnerOuterRingDynamicSendRecvRanks(world_size, local_size, self_rank):
    """Yields ([rank to send to], [rank to receive from]) per step: one rank of each machine sends to the next machine,
    and the others form a ring within their machine."""
    _check_machines(world_size, local_size)
    return _steps(_graph.inner_outer_ring(world_size, local_size, self_rank))


def GetInnerOuterExpo2DynamicSendRecvRanks(world_size, local_size, self_rank):
    """GetInnerOuterRingDynamicSendRecvRanks() with the distances of exponential graphs."""
    _check_machines(world_size, local_size)
    return _steps(_graph.inner_outer_exponential(world_size, local_size, self_rank))


def _steps(peers):
    return ((list(send), list(receive)) for send, receive in peers)


def _check_size(size):
    if size < 1:
        raise ValueError(f"a graph of {size} nodes")


def _check_machines(world_size, local_size):
    if local_size < 1 or world_size % local_size != 0:
        raise ValueError(f"{world_size} ranks can't be divided into machines of {local_size}")


def _is_power(number, base):
    if base < 2:
        raise ValueError(f"base {base}: it has to be at least 2")
    while number > 1 and number % base == 0:
        number //= base
    return number == 1


def _circulant(size, distances):
    return _from_weights(_circulant_weights(size, distances))


def _circulant_weights(size, distances):
    """The matrix in which each node gives itself and the nodes at the distances the same weight."""
    distances = {distance % size for distance in distances} | {0}
    weights = numpy.zeros((size, size))
    for node in range(size):
        for distance in distances:
            weights[node, (node + distance) % size] = 1 / len(distances)
    return weights


def _inner_outer(world_size, local_size, is_linked):
    _check_machines(world_size, local_size)
    machines = world_size // local_size
    weights = numpy.zeros((world_size, world_size))
    for source in range(world_size):
        for target in range(world_size):
            distance = (target // local_size - source // local_size) % machines
            same_local_rank = source % local_size == target % local_size
            weights[source, target] = distance == 0 or (same_local_rank and is_linked(distance))
    return _from_weights(weights / weights.sum(axis=0))


def _from_weights(weights):
    try:
        import networkx  # here, as everything but graphs works without it
    except ImportError as error:
        raise ImportError(f"topologies as graphs need networkx (pip install networkx): {error}") from error
    return networkx.from_numpy_array(weights, create_using=networkx.DiGraph)


def _weights(topo, rank, edges):
    weights = {other: float(data.get("weight", 1.0)) for other, data in edges}
    own = weights.pop(rank, 0.0)
    return own, dict(sorted(weights.items()))
