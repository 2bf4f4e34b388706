"""The neighbors of a call: its arguments, and what all ranks find out about them together."""

import numpy

import dunlin
from dunlin import _dunlin, _survivors
from dunlin.torch import _job


def resolved(neighbors, own, count, self_weight, src_weights, dst_weights, enable_topo_check):
    """(self weight, {source: weight}, {destination: weight}) of a call. neighbors: of the topology, or None."""
    if self_weight is None and src_weights is None and dst_weights is None:
        return neighbors.self_weight, neighbors.source_weights, dict.fromkeys(neighbors.destinations, 1.0)
    sources = destinations = error = None
    try:
        if self_weight is None or (src_weights is None and dst_weights is None):
            raise ValueError("give self_weight together with src_weights, dst_weights or both")
        self_weight = float(self_weight)
        sources, destinations = _as_weights(src_weights, "src_weights"), _as_weights(dst_weights, "dst_weights")
        if not enable_topo_check:
            sources, destinations = _completed(sources, destinations, neighbors)
    except ValueError as caught:
        error = caught
    sources, destinations = matched(sources, destinations, enable_topo_check, own, count, error)
    clockwise = sorted(destinations.items(), key=lambda item: (item[0] - own) % count)
    return self_weight, sources, dict(clockwise)


def on_death(src_weights, dst_weights):
    """What a call of neighbor_allreduce() with these arguments does when a neighbor is dead, by where its weights are."""
    if not _survivors.goes_on():
        return _survivors.RAISE
    sources, destinations = _as_weights(src_weights, "src_weights"), _as_weights(dst_weights, "dst_weights")
    if destinations is None:
        return _survivors.OWN_DATA
    if sources is None or all(weight == 1 for weight in sources.values()):
        is_push = sources is None or any(weight != 1 for weight in destinations.values())
        return _survivors.OWN_SHARE if is_push else _survivors.OWN_DATA
    return _survivors.on_death(sources, destinations)


def _completed(sources, destinations, neighbors):
    """Completes one side from the other and the topology, without communication. Neighbors left out weigh 0."""
    if sources is not None and destinations is not None:
        return sources, destinations
    if neighbors is None:
        raise ValueError("without a topology, src_weights and dst_weights are both needed, or enable_topo_check")
    given = destinations if sources is None else sources
    known = neighbors.destinations if sources is None else neighbors.sources
    for other in given:
        if other not in known:
            raise ValueError(f"{other} is no neighbor in the topology: give both src_weights and dst_weights")
    given = {**dict.fromkeys(known, 0.0), **given}
    if sources is None:
        return dict.fromkeys(neighbors.sources, 1.0), given
    return given, dict.fromkeys(neighbors.destinations, 1.0)


def _as_weights(weights, what):
    if weights is None:
        return None
    if not isinstance(weights, dict):
        weights = dict.fromkeys(weights, 1.0)
    for other in weights:
        if isinstance(other, bool) or not isinstance(other, (int, numpy.integer)):
            raise ValueError(f"{what} has {other!r} for a rank")
    return {int(other): float(weight) for other, weight in weights.items()}


def matched(sources, destinations, enable_topo_check, own, count, error=None):
    """(sources, destinations) of the node `own`, checked by all ranks together; without enable_topo_check, here alone.

    Nodes are the ranks, or the machines: `count` of them. None stands for the side that is to be found from the other
    nodes' sides. error: what this rank already knows to be wrong with its arguments; it is raised here after all ranks
    were told. ValueError on all ranks if the nodes' sides don't match.
    """
    error = error or _bad_ranks(sources or {}, destinations or {}, own, count)
    if enable_topo_check:
        rows = _job.by_rank(dunlin.all_gather(_claims(sources, destinations, own, count, error)))
    if error:
        raise error
    if not enable_topo_check:
        return sources, destinations
    receives, sends = _completed_matrices(_table_of_nodes(rows, count))
    if count == _job.job().size:
        # Calls go on without ranks that take no part any more.
        members = numpy.zeros(count, bool)
        members[_dunlin.members()] = True
        receives, sends = receives & members[:, None] & members, sends & members[:, None] & members
    _check_transposed(receives, sends)
    if sources is None:
        sources = dict.fromkeys(numpy.flatnonzero(receives[own]).tolist(), 1.0)
    if destinations is None:
        destinations = dict.fromkeys(numpy.flatnonzero(sends[own]).tolist(), 1.0)
    return sources, destinations


# Bits of a claim: what a rank says about a node, and, in its own node's place, about its own arguments.
_SOURCE, _DESTINATION, _ASKS_SOURCES, _ASKS_DESTINATIONS, _ERROR = 1, 2, 4, 8, 16


def _claims(sources, destinations, own, count, error):
    """What this rank tells the others: a byte per node."""
    row = numpy.zeros(count, numpy.uint8)
    if error:
        row[own] = _ERROR
        return row
    row[list(sources or {})] |= _SOURCE
    row[list(destinations or {})] |= _DESTINATION
    row[own] |= (sources is None) * _ASKS_SOURCES | (destinations is None) * _ASKS_DESTINATIONS
    return row


def _table_of_nodes(rows, count):
    """A row of claims per node, from a row per rank. ValueError for errors, and for machines whose ranks differ."""
    wrong = numpy.flatnonzero((rows & _ERROR).any(axis=1)).tolist()
    if wrong:
        raise ValueError(f"the arguments of the ranks {wrong} are wrong")
    job = _job.job()
    if count == job.size:
        return rows
    for ranks in job.machines:
        if (rows[ranks] != rows[ranks[0]]).any():
            raise ValueError(f"the ranks {ranks} of a machine have not named the same machines")
    return rows[[ranks[0] for ranks in job.machines]]


def _completed_matrices(table):
    """(receives, sends), with the sides that were asked for. receives[i, j]: i has j as a source; sends[i, j]: i has j
    as a destination."""
    marks = numpy.diag(table)
    receives, sends = (table & _SOURCE) > 0, (table & _DESTINATION) > 0
    for node in numpy.flatnonzero(marks & _ASKS_DESTINATIONS):
        sends[node] |= receives[:, node]
    for node in numpy.flatnonzero(marks & _ASKS_SOURCES):
        receives[node] |= sends[:, node]
    return receives, sends


def _check_transposed(receives, sends):
    """ValueError unless each node receives from exactly the nodes that send to it."""
    wrong = numpy.argwhere(receives != sends.T)
    if not len(wrong):
        return
    listed = [f"{receiver} receives from {sender}, which doesn't send to it" if receives[receiver, sender] else
              f"{sender} sends to {receiver}, which doesn't receive from it" for receiver, sender in wrong[:3]]
    more = ", ..." if len(wrong) > len(listed) else ""
    raise ValueError(f"sources and destinations don't match: {', '.join(listed)}{more}")


def _bad_ranks(sources, destinations, own, count):
    for what, weights in (("source", sources), ("destination", destinations)):
        for other in weights:
            if not 0 <= other < count:
                return ValueError(f"{what} {other} of {own}: there are 0 .. {count - 1}")
            if other == own:
                return ValueError(f"{own} has itself as a {what}")
    return None


def infer(known, is_source, construct_adjacency_matrix):
    """The other side of this rank's neighbors, and the matrix of uniform averages if it is asked for."""
    job = _job.job()
    given = error = None
    try:
        given = _as_weights(list(known), "the list of ranks")
    except (TypeError, ValueError) as caught:
        error = caught
    sources, destinations = matched(given if is_source else None, None if is_source else given, True, job.rank,
                                    job.size, error)
    found = sorted(destinations if is_source else sources)
    if not construct_adjacency_matrix:
        return found
    row = numpy.zeros(job.size)
    row[list(destinations)] = 1
    row[job.rank] = 1
    matrix = _job.by_rank(dunlin.all_gather(row))
    numpy.fill_diagonal(matrix, 1)  # for ranks that take no part any more, too
    return found, matrix / matrix.sum(axis=0)


def InferSourceFromDestinationRanks(dst_ranks, construct_adjacency_matrix=False):
    """The ranks that this one receives from, when every rank gives the ranks that it sends to. Collective.

    With construct_adjacency_matrix, (ranks, matrix): column j has the weights 1 / (sources + 1) of rank j.
    """
    return infer(dst_ranks, False, construct_adjacency_matrix)


def InferDestinationFromSourceRanks(src_ranks, construct_adjacency_matrix=False):
    """The ranks that this one sends to, when every rank gives the ranks that it receives from. Collective.

    With construct_adjacency_matrix: as InferSourceFromDestinationRanks().
    """
    return infer(src_ranks, True, construct_adjacency_matrix)
