"""Whom a call with neighbors concerns: arguments, and what all ranks find out about them together."""

import numpy

import dunlin
from dunlin.torch import _job


def resolved(neighbors, own, count, self_weight, src_weights, dst_weights, enable_topo_check):
    """(self weight, {source: weight}, {destination: weight}) of a call. neighbors: of the topology, or None."""
    if self_weight is None and src_weights is None and dst_weights is None:
        return neighbors.self_weight, neighbors.source_weights, dict.fromkeys(neighbors.destinations, 1.0)
    sources = destinations = error = None
    try:
        if self_weight is None or (src_weights is None and dst_weights is None):
            raise ValueError("self_weight comes with src_weights, dst_weights or both, and they with it")
        self_weight = float(self_weight)
        sources, destinations = _as_weights(src_weights, "src_weights"), _as_weights(dst_weights, "dst_weights")
        if not enable_topo_check:
            sources, destinations = _completed(sources, destinations, neighbors)
    except ValueError as caught:
        error = caught
    sources, destinations = matched(sources, destinations, enable_topo_check, own, count, error)
    clockwise = sorted(destinations.items(), key=lambda item: (item[0] - own) % count)
    return self_weight, sources, dict(clockwise)


def _completed(sources, destinations, neighbors):
    """Without a word to the others: as the topology has them, of whom some may count for nothing."""
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


_SOURCE, _DESTINATION, _ASKS_SOURCES, _ASKS_DESTINATIONS, _ERROR = 1, 2, 4, 8, 16


def matched(sources, destinations, enable_topo_check, own, count, error=None):
    """Both, checked by all ranks together. None stands for what is to be found out. error: what is wrong here."""
    error = error or _bad_ranks(sources or {}, destinations or {}, own, count)
    if not enable_topo_check:
        if error:
            raise error
        return sources, destinations
    row = numpy.zeros(count, numpy.uint8)
    if error:
        row[own] |= _ERROR
    else:
        row[list(sources or {})] |= _SOURCE
        row[list(destinations or {})] |= _DESTINATION
        row[own] |= (sources is None) * _ASKS_SOURCES | (destinations is None) * _ASKS_DESTINATIONS
    rows = dunlin.all_gather(row)
    if error:
        raise error
    wrong = [rank for rank in range(len(rows)) if (rows[rank] & _ERROR).any()]
    if wrong:
        raise ValueError(f"the arguments of the ranks {wrong} are wrong")
    job = _job.job()
    table = rows
    if count != job.size:
        # Of machines: all ranks of one have to say the same.
        for ranks in job.machines:
            if (rows[ranks] != rows[ranks[0]]).any():
                raise ValueError(f"the ranks {ranks} of a machine have not named the same machines")
        table = rows[[ranks[0] for ranks in job.machines]]
    marks = numpy.diag(table).copy()
    numpy.fill_diagonal(table, 0)
    # receives[i, j]: i has j as a source; sends[i, j]: i has j as a destination.
    receives, sends = (table & _SOURCE) > 0, (table & _DESTINATION) > 0
    for node in numpy.flatnonzero(marks & _ASKS_DESTINATIONS):
        sends[node] |= receives[:, node]
    for node in numpy.flatnonzero(marks & _ASKS_SOURCES):
        receives[node] |= sends[:, node]
    wrong = numpy.argwhere(receives != sends.T)
    if len(wrong):
        listed = ", ".join(
            f"{receiver} receives from {sender}, which doesn't send to it" if receives[receiver, sender] else
            f"{sender} sends to {receiver}, which doesn't receive from it" for receiver, sender in wrong[:3])
        raise ValueError(f"sources and destinations don't match: {listed}{', ...' if len(wrong) > 3 else ''}")
    if sources is None:
        sources = dict.fromkeys(numpy.flatnonzero(receives[own]).tolist(), 1.0)
    if destinations is None:
        destinations = dict.fromkeys(numpy.flatnonzero(sends[own]).tolist(), 1.0)
    return sources, destinations


def _bad_ranks(sources, destinations, own, count):
    for what, weights in (("source", sources), ("destination", destinations)):
        for other in weights:
            if not 0 <= other < count:
                return ValueError(f"{what} {other} of {own}: there are 0 .. {count - 1}")
            if other == own:
                return ValueError(f"{own} has itself as a {what}")
    return None


def infer(known, is_source, construct_adjacency_matrix):
    """The other half of who receives from whom, and the matrix of uniform averages where it is asked for."""
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
    matrix = dunlin.all_gather(row)
    return found, matrix / matrix.sum(axis=0)


def InferSourceFromDestinationRanks(dst_ranks, construct_adjacency_matrix=False):
    """Whom this rank receives from, when every rank says whom it sends to. Collective.

    With construct_adjacency_matrix, (ranks, matrix): column j has the weights 1 / (sources + 1) of rank j.
    """
    return infer(dst_ranks, False, construct_adjacency_matrix)


def InferDestinationFromSourceRanks(src_ranks, construct_adjacency_matrix=False):
    """Whom this rank sends to, when every rank says whom it receives from. Collective; as its counterpart."""
    return infer(src_ranks, True, construct_adjacency_matrix)
