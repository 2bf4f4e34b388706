"""The job as BlueFog sees it: ranks, machines (the ranks of a host, by default), and topologies of both."""

import atexit
import contextlib
import logging
import os
import sys
import zlib

import numpy

import dunlin
from dunlin import _dunlin, _gpus, _survivors, errors
from dunlin.torch import topology_util
from dunlin.torch._timeline import Timeline

logger = logging.getLogger("dunlin")


class Neighbors:
    """A topology of ranks or machines, as one of them (`own`) sees it.

    edges: {(source, target): weight}. graph: the networkx.DiGraph that they are from; None: the default topology.
    nodes: those that take part; None: all.
    """

    def __init__(self, edges, count, is_weighted, own, graph=None, nodes=None):
        self.edges = edges
        self.count = count
        self.is_weighted = is_weighted
        self.own = own
        self.graph = graph
        self.nodes = list(range(count)) if nodes is None else nodes
        self.sources = sorted(source for source, target in edges if target == own and source != own)
        # Clockwise from here, so that the ranks don't all begin with the same one.
        self.destinations = sorted((target for source, target in edges if source == own and target != own),
                                   key=lambda target: (target - own) % count)
        if is_weighted:
            self.self_weight = float(edges.get((own, own), 0.0))
            self.source_weights = {source: float(edges[source, own]) for source in self.sources}
        else:
            self.self_weight = 1 / (len(self.sources) + 1)
            self.source_weights = dict.fromkeys(self.sources, self.self_weight)

    @property
    def topology(self):
        """The networkx.DiGraph."""
        if self.graph is not None:
            return self.graph
        made = topology_util.ExponentialGraph(len(self.nodes))
        if len(self.nodes) == self.count:
            return made
        import networkx

        return networkx.relabel_nodes(made, dict(enumerate(self.nodes)))

    def among(self, nodes):
        """The Neighbors among some of the nodes. The default topology becomes that of so many nodes. Of others, edges of
        the other nodes are dropped, and the weights of those by which a node received are added to its own.
        """
        if self.graph is None:
            return Neighbors(_default_edges(nodes), self.count, self.is_weighted, self.own, nodes=nodes)
        edges = {(source, target): weight for (source, target), weight in self.edges.items()
                 if source in nodes and target in nodes}
        graph = self.graph.subgraph(nodes).copy()
        for (source, target), weight in self.edges.items():
            if target in nodes and source not in nodes:
                edges[target, target] = edges.get((target, target), 0.0) + weight
        if self.is_weighted:
            graph.add_weighted_edges_from((source, target, weight) for (source, target), weight in edges.items())
        return Neighbors(edges, self.count, self.is_weighted, self.own, graph, nodes)


class Job:
    """Everything between init() and shutdown()."""

    def __init__(self):
        self.rank, self.size = dunlin.rank(), dunlin.size()
        self.machines = self._find_machines()
        self.machine_rank = next(number for number, ranks in enumerate(self.machines) if self.rank in ranks)
        self.local_rank = self.machines[self.machine_rank].index(self.rank)
        self.local_size = len(self.machines[self.machine_rank])
        self.is_homogeneous = len({len(ranks) for ranks in self.machines}) == 1
        self.neighbors = None
        self.machine_neighbors = None
        self.windows = {}
        self.pending = {}  # {handle: _operations.Pending}
        self.gpu = None  # the device of the first tensor on a GPU, on which all operations of GPUs are
        self.can_all_use_gpu = None  # in collectives of all ranks; None: not known
        self.last_handle = 0
        self.timeline = self._open_timeline()
        self._machine_averages = None
        self._local = None

    def _find_machines(self):
        """The ranks of each machine: those of a host, or as many in a row as the environment says."""
        per_machine = _dunlin.settings()["nodes_per_machine"]
        if per_machine == 0 and "BLUEFOG_NODES_PER_MACHINE" in os.environ:
            text = os.environ["BLUEFOG_NODES_PER_MACHINE"]
            if not text.isdecimal():
                raise ValueError(f'BLUEFOG_NODES_PER_MACHINE is "{text}", not a number')
            per_machine = int(text)
        if per_machine > 0:
            return [list(range(first, min(first + per_machine, self.size)))
                    for first in range(0, self.size, per_machine)]
        return dunlin.world().hosts()

    def _open_timeline(self):
        prefix = _dunlin.settings()["timeline"] or os.environ.get("BLUEFOG_TIMELINE")
        return Timeline(f"{prefix}{self.rank}.json", self.rank) if prefix else None

    def need_homogeneous(self, what):
        if not self.is_homogeneous:
            sizes = [len(ranks) for ranks in self.machines]
            raise RuntimeError(f"{what} needs the same number of ranks on each machine; they have {sizes}")

    def common_gpu(self, devices):
        """The GPU on which the tensors of these devices are combined with those of the other ranks. None: in host memory,
        because not all tensors of a rank are on one GPU, or because a rank cannot use it. Collective.
        """
        own = next(iter(devices)) if len(devices) == 1 else None
        if not _gpus.can_all_use(own if self.gpu in (None, own) else None):
            return None
        self.gpu = own
        return own

    def can_use_gpu(self, communicator):
        """Whether all ranks can make calls on their GPUs. Collective at first use."""
        if communicator is not dunlin.world():
            return communicator.can_use_gpu(self.gpu.index)
        # Survivors of a death do not agree anew: they are some of the ranks that have agreed.
        if self.can_all_use_gpu is None:
            self.can_all_use_gpu = communicator.can_use_gpu(self.gpu.index)
        return self.can_all_use_gpu

    @property
    def machine_averages(self):
        """Collective at first use."""
        if self._machine_averages is None:
            _survivors.refuse("hierarchical_neighbor_allreduce")
            self.need_homogeneous("hierarchical_neighbor_allreduce")
            self._machine_averages = dunlin.Machines(self.machines)
        return self._machine_averages

    @property
    def local(self):
        """The communicator of this machine's ranks. Collective at first use."""
        if self._local is None:
            self._local = dunlin.split(self.machine_rank)
        return self._local


_job = None


def job():
    """The job; ValueError before init()."""
    if _job is None:
        raise ValueError("Dunlin has not been initialized: call init() first")
    return _job


def _of_members(topology):
    """The graph with the ranks that are there in place of its nodes 0, 1, ..., after a reform() that has lost some."""
    members = _dunlin.members()
    if members == list(range(len(members))):
        return topology
    import networkx
    if not isinstance(topology, networkx.Graph):
        return topology  # set_topology() refuses it
    return networkx.relabel_nodes(topology, dict(enumerate(members)))


def init(topology_fn=None, is_weighted=False, on_peer_loss=None):
    """Joins the job. All ranks call it. A second call only sets the topology, as the first one does; windows and
    operations in progress stay.

    topology_fn: a function of the number of ranks that returns a networkx.DiGraph; ExponentialGraph by default. If it
    raises an exception on a rank, the others get ValueError.
    is_weighted: see set_topology().
    on_peer_loss: "raise" (the default) or "continue", the same on all ranks, as in dunlin.init(). With "continue",
        operations with neighbors, windows, and the optimizers that are built on them go on without ranks that have died;
        see reform().
    """
    global _job
    if not dunlin.is_initialized():
        _job = None
    dunlin.init(on_peer_loss=on_peer_loss)
    if _dunlin.is_elastic():
        raise errors.of("unavailable", "dunlin.torch needs a job whose ranks stay the same (without --max-ranks)", None)
    if _job is None:
        _job = Job()
        _job.neighbors = Neighbors(_default_edges(range(_job.size)), _job.size, False, _job.rank)
    try:
        topology = None if topology_fn is None else _of_members(topology_fn(len(_dunlin.members())))
    except Exception as error:
        # The other ranks wait for this one's topology.
        _agreed(None, is_weighted, _job.rank, _job.size, "topology", error=error)
        raise
    set_topology(topology, is_weighted)


def shutdown():
    """Leaves the job when all ranks have called it."""
    global _job
    if _job is not None and _job.timeline is not None:
        _job.timeline.close()
    _job = None
    if dunlin.is_initialized():
        dunlin.shutdown()


def reform(timeout=None):
    """Agrees on the ranks that are still there, and returns them. They all call it, at the same place of the program, such
    as the begin of an epoch, whether or not a rank has died. It needs init(on_peer_loss="continue").

    Without it, operations with neighbors go on in the topology without the ranks that have died. From this call on,
        the default topology is ExponentialGraph() of the survivors, in which averages keep their mean again. Of another
            one, the survivors' part remains, which may not be connected: then call set_topology().
        set_topology() takes a graph whose nodes are the survivors.
        allreduce(), broadcast(), barrier() and other calls of all ranks are calls of the survivors.
        windows keep the neighbors with which they were made, as far as these live.
    Ranks keep their numbers, and size() stays the same: len(dunlin.members()) ranks take part. No operation may be in
    progress on any rank.

    timeout: as in dunlin.reform(). DeadlineExceededError if a survivor does not call it in time.
    """
    current = job()
    if not _survivors.goes_on():
        raise errors.of("invalid_argument", 'reform() needs init(on_peer_loss="continue")', None)
    members = dunlin.reform(timeout)
    current._local = None
    current.neighbors = current.neighbors.among(members)
    return members


def place_of(rank):
    """The rank's number in dunlin.world(). ValueError if it takes no part any more."""
    members = _dunlin.members()
    if rank in members:
        return members.index(rank)
    raise ValueError(f"rank {rank} is not one of the ranks {members}")


def by_rank(rows):
    """Rows of the job's ranks, of which those of ranks that take no part any more are zero, from the members' rows."""
    size = job().size
    if len(rows) == size:
        return rows
    full = numpy.zeros((size, *rows.shape[1:]), rows.dtype)
    full[_dunlin.members()] = rows
    return full


@atexit.register
def _close():
    if _job is not None and _job.timeline is not None:
        _job.timeline.close()


def size():
    """The number of ranks."""
    return job().size


def rank():
    """This process's number, 0 .. size() - 1."""
    return job().rank


def local_size():
    """The number of ranks on this machine."""
    return job().local_size


def local_rank():
    """This process's number among the ranks of its machine, 0 .. local_size() - 1."""
    return job().local_rank


def machine_size():
    """The number of machines. RuntimeError if they differ in their number of ranks."""
    job().need_homogeneous("machine_size()")
    return len(job().machines)


def machine_rank():
    """The number of this process's machine, 0 .. machine_size() - 1. RuntimeError as machine_size()."""
    job().need_homogeneous("machine_rank()")
    return job().machine_rank


def is_homogeneous():
    """Whether all machines have the same number of ranks."""
    return job().is_homogeneous


def load_topology():
    """The topology of the ranks, a networkx.DiGraph (needs networkx)."""
    return job().neighbors.topology


def is_topo_weighted():
    """Whether averages use the weights of the topology."""
    return job().neighbors.is_weighted


def load_machine_topology():
    """The topology of the machines, or None before set_machine_topology()."""
    neighbors = job().machine_neighbors
    return neighbors.topology if neighbors is not None else None


def is_machine_topo_weighted():
    """Whether averages of machines use the weights of the machine topology."""
    neighbors = job().machine_neighbors
    return neighbors is not None and neighbors.is_weighted


def in_neighbor_ranks():
    """The ranks that this one receives from, ascending, without itself."""
    return list(job().neighbors.sources)


def out_neighbor_ranks():
    """The ranks that this one sends to, ascending, without itself."""
    return sorted(job().neighbors.destinations)


def in_neighbor_machine_ranks():
    """The machines that this one receives from, ascending, without itself."""
    return list(_machine_neighbors().sources)


def out_neighbor_machine_ranks():
    """The machines that this one sends to, ascending, without itself."""
    return sorted(_machine_neighbors().destinations)


def set_topology(topology=None, is_weighted=False):
    """Sets the neighbors that a rank averages with by default. All ranks call it with the same topology.

    topology: a networkx.DiGraph of the ranks. None: ExponentialGraph(size()). After reform(), of those that it has
        returned.
    is_weighted: averages use the weights of its edges. Otherwise a rank and its in-neighbors weigh the same.

    Returns whether it was set. While there are windows it is not, as they have the neighbors of their creation.
    TypeError if it is not a DiGraph. ValueError on all ranks if its nodes are not the ranks, or if ranks differ.
    """
    current = job()
    neighbors = _agreed(topology, is_weighted, current.rank, current.size, "topology", has_default=True,
                        nodes=_dunlin.members())
    if current.windows and not _is_same(current.neighbors, neighbors):
        logger.error("The topology stays as it is while there are windows: call win_free() first.")
        return False
    current.neighbors = neighbors
    return True


def set_machine_topology(topology, is_weighted=False):
    """set_topology() of the machines, which all have the same number of ranks. Returns True."""
    current = job()
    current.need_homogeneous("set_machine_topology()")
    current.machine_neighbors = _agreed(topology, is_weighted, current.machine_rank, len(current.machines),
                                        "machine topology")
    return True


def _machine_neighbors():
    neighbors = job().machine_neighbors
    if neighbors is None:
        raise ValueError("there is no topology of machines: call set_machine_topology() first")
    return neighbors


def _is_same(one, other):
    return one.is_weighted == other.is_weighted and one.edges == other.edges


def _agreed(topology, is_weighted, own, count, what, has_default=False, error=None, nodes=None):
    """The Neighbors if all ranks have given the same topology. A rank with a wrong one tells the others as well.

    has_default: None stands for ExponentialGraph(), which is not made: it would need networkx.
    error: why this rank has no topology; raised here.
    nodes: those of the topology; None: 0 .. count - 1.
    """
    nodes = list(range(count)) if nodes is None else nodes
    edges = {}
    if error is not None:
        pass
    elif topology is None and has_default:
        edges = _default_edges(nodes)
    elif not _is_directed_graph(topology):
        error = TypeError(f"the {what} is a {type(topology).__name__}, not a networkx.DiGraph")
    elif set(topology.nodes) != set(nodes):
        those = f"0 .. {count - 1}" if len(nodes) == count else f"of the ranks {nodes}"
        error = ValueError(f"the nodes of the {what} have to be the numbers {those}")
    else:
        edges = {(source, target): data.get("weight", 1.0) for source, target, data in topology.edges(data=True)}
    text = repr((bool(is_weighted), sorted((*edge, weight) for edge, weight in edges.items())))
    mine = numpy.array([-1 if error else zlib.crc32(text.encode())], numpy.int64)
    all_sums = dunlin.all_gather(mine)
    if error:
        raise error
    if (all_sums != mine[0]).any():
        others = [other for other, number in zip(_dunlin.members(), all_sums.ravel()) if number != mine[0]]
        raise ValueError(f"rank {dunlin.rank()} and the ranks {others} have not given the same {what}")
    return Neighbors(edges, count, bool(is_weighted), own, topology, nodes)


def _default_edges(nodes):
    weights = topology_util.exponential_weights(len(nodes))
    return {(nodes[source], nodes[target]): float(weights[source, target])
            for source, target in numpy.argwhere(weights).tolist()}


def _is_directed_graph(topology):
    networkx = sys.modules.get("networkx")  # a program with a graph of it has imported it
    return networkx is not None and isinstance(topology, networkx.DiGraph)


# What programs ask BlueFog about its implementation.


def mpi_threads_supported():
    """True: any thread may call."""
    return True


def unified_mpi_window_model_supported():
    """True: windows are memory like any other."""
    return True


def nccl_built():
    """False: NCCL is not used."""
    return False


def suspend():
    """Does nothing: a rank that doesn't communicate costs nothing."""


def resume():
    """Does nothing: see suspend()."""


def set_skip_negotiate_stage(value):
    """Does nothing: calls are matched by name among the neighbors concerned, without negotiation."""


def get_skip_negotiate_stage():
    """True: see set_skip_negotiate_stage()."""
    return True


def timeline_start_activity(tensor_name, activity_name):
    """Records in the timeline that this thread begins an activity. Returns False if there is no timeline."""
    timeline = job().timeline
    if timeline is None:
        logger.error("There is no timeline: set DUNLIN_TIMELINE (or BLUEFOG_TIMELINE) before the first init().")
        return False
    timeline.begin(tensor_name, activity_name)
    return True


def timeline_end_activity(tensor_name):
    """Ends the activity that timeline_start_activity() began. Returns False if there is no timeline."""
    timeline = job().timeline
    if timeline is None:
        return False
    timeline.end(tensor_name)
    return True


@contextlib.contextmanager
def timeline_context(tensor_name, activity_name):
    """Records the body of a `with` statement in the timeline, as an activity."""
    timeline_start_activity(tensor_name, activity_name)
    try:
        yield
    finally:
        timeline_end_activity(tensor_name)
