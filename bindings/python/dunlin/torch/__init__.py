"""BlueFog's interface to PyTorch: averages with neighbors, windows, and optimizers that are built on them.

    import dunlin.torch as bf
    bf.init()
    x = torch.ones(4) * bf.rank()
    x = bf.neighbor_allreduce(x)            # with the in-neighbors of bf.load_topology()

Names and meanings are those of BlueFog (Ying et al., "BlueFog: Make Decentralized Algorithms Practical for Optimization
and Deep Learning", 2021), so that its scripts run once the import line is changed. Graphs (load_topology(), the ...Graph
functions) need networkx.

Tensors on a GPU stay there in allreduce(), broadcast() and neighbor_allreduce(), in all their forms, in
broadcast_parameters() and allreduce_parameters(), in windows, and in optimizers but those of stochastic reduce without
NOTIFY-ACK, if all ranks have a GPU for it and are on one host or have a transport for GPU memory. Otherwise they go
through copies in host memory, as they do in all other operations. The ranks agree on that in the first such call, which
all ranks make. In each call, either all ranks pass tensors on a GPU or all pass tensors in host memory. Tensors that
aren't contiguous are copied.

Environment, read by the first init():
    DUNLIN_NODES_PER_MACHINE  (BLUEFOG_NODES_PER_MACHINE) this many ranks in a row are a machine; default: a host's
    DUNLIN_TIMELINE           (BLUEFOG_TIMELINE) each rank writes a timeline to the file <this><rank>.json
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"dunlin.torch needs PyTorch: {error}") from error

from dunlin.torch import env, topology_util
from dunlin.torch._job import (
    get_skip_negotiate_stage, in_neighbor_machine_ranks, in_neighbor_ranks, init, is_homogeneous,
    is_machine_topo_weighted, is_topo_weighted, load_machine_topology, load_topology, local_rank, local_size,
    machine_rank, machine_size, mpi_threads_supported, nccl_built, out_neighbor_machine_ranks, out_neighbor_ranks, rank,
    reform, resume, set_machine_topology, set_skip_negotiate_stage, set_topology, shutdown, size, suspend,
    timeline_context, timeline_end_activity, timeline_start_activity, unified_mpi_window_model_supported)
from dunlin.torch._matching import InferDestinationFromSourceRanks, InferSourceFromDestinationRanks
from dunlin.torch._methods import DistributedOptimizer
from dunlin.torch._operations import (
    allgather, allgather_nonblocking, allreduce, allreduce_, allreduce_nonblocking, allreduce_nonblocking_, barrier,
    broadcast, broadcast_, broadcast_nonblocking, broadcast_nonblocking_, hierarchical_neighbor_allreduce,
    hierarchical_neighbor_allreduce_, hierarchical_neighbor_allreduce_nonblocking,
    hierarchical_neighbor_allreduce_nonblocking_, neighbor_allgather, neighbor_allgather_nonblocking,
    neighbor_allreduce, neighbor_allreduce_, neighbor_allreduce_nonblocking, neighbor_allreduce_nonblocking_,
    pair_gossip, pair_gossip_nonblocking, partial_allreduce, partial_allreduce_, partial_allreduce_nonblocking,
    partial_allreduce_nonblocking_, poll, synchronize, wait)
from dunlin.torch._parameters import allreduce_parameters, broadcast_optimizer_state, broadcast_parameters
from dunlin.torch._windows import (
    get_current_created_window_names, get_win_version, neighbor_win_accumulate, neighbor_win_accumulate_nonblocking,
    neighbor_win_get, neighbor_win_get_nonblocking, neighbor_win_put, neighbor_win_put_nonblocking,
    turn_off_win_ops_with_associated_p, turn_on_win_ops_with_associated_p, win_accumulate,
    win_accumulate_nonblocking, win_associated_p, win_create, win_free, win_get, win_get_nonblocking, win_mutex,
    win_poll, win_put, win_put_nonblocking, win_update, win_update_then_collect, win_wait)
from dunlin.torch.optimizers import (
    CommunicationType, DistributedAdaptThenCombineOptimizer, DistributedAdaptWithCombineOptimizer,
    DistributedAllreduceOptimizer, DistributedDmSGDOptimizer, DistributedGradientAllreduceOptimizer,
    DistributedHierarchicalNeighborAllreduceOptimizer, DistributedNeighborAllreduceOptimizer,
    DistributedQGDmSGDOptimizer, DistributedWinPutOptimizer)
from dunlin.torch.topology_util import (
    ExponentialGraph, ExponentialTwoGraph, FullyConnectedGraph, GetDynamicOnePeerSendRecvRanks,
    GetExp2DynamicSendRecvMachineRanks, GetInnerOuterExpo2DynamicSendRecvRanks,
    GetInnerOuterRingDynamicSendRecvRanks, GetRecvWeights, GetSendWeights, InnerOuterExpo2Graph,
    InnerOuterRingGraph, isPowerOf, IsRegularGraph, IsTopologyEquivalent, MeshGrid2DGraph, RingGraph, StarGraph,
    SymmetricExponentialGraph)

__all__ = [
    "allgather", "allgather_nonblocking", "allreduce", "allreduce_", "allreduce_nonblocking",
    "allreduce_nonblocking_", "allreduce_parameters", "barrier", "broadcast", "broadcast_", "broadcast_nonblocking",
    "broadcast_nonblocking_", "broadcast_optimizer_state", "broadcast_parameters", "CommunicationType",
    "DistributedAdaptThenCombineOptimizer", "DistributedAdaptWithCombineOptimizer", "DistributedAllreduceOptimizer",
    "DistributedDmSGDOptimizer", "DistributedGradientAllreduceOptimizer",
    "DistributedHierarchicalNeighborAllreduceOptimizer", "DistributedNeighborAllreduceOptimizer", "DistributedOptimizer",
    "DistributedQGDmSGDOptimizer", "DistributedWinPutOptimizer", "env", "ExponentialGraph", "ExponentialTwoGraph", "FullyConnectedGraph", "get_current_created_window_names", "get_skip_negotiate_stage",
    "get_win_version", "GetDynamicOnePeerSendRecvRanks", "GetExp2DynamicSendRecvMachineRanks",
    "GetInnerOuterExpo2DynamicSendRecvRanks", "GetInnerOuterRingDynamicSendRecvRanks", "GetRecvWeights",
    "GetSendWeights", "hierarchical_neighbor_allreduce", "hierarchical_neighbor_allreduce_",
    "hierarchical_neighbor_allreduce_nonblocking", "hierarchical_neighbor_allreduce_nonblocking_",
    "in_neighbor_machine_ranks", "in_neighbor_ranks", "InferDestinationFromSourceRanks",
    "InferSourceFromDestinationRanks", "init", "InnerOuterExpo2Graph", "InnerOuterRingGraph", "is_homogeneous",
    "is_machine_topo_weighted", "is_topo_weighted", "isPowerOf", "IsRegularGraph", "IsTopologyEquivalent",
    "load_machine_topology", "load_topology", "local_rank", "local_size", "machine_rank", "machine_size",
    "MeshGrid2DGraph", "mpi_threads_supported", "nccl_built", "neighbor_allgather",
    "neighbor_allgather_nonblocking", "neighbor_allreduce", "neighbor_allreduce_", "neighbor_allreduce_nonblocking",
    "neighbor_allreduce_nonblocking_", "neighbor_win_accumulate", "neighbor_win_accumulate_nonblocking",
    "neighbor_win_get", "neighbor_win_get_nonblocking", "neighbor_win_put", "neighbor_win_put_nonblocking",
    "out_neighbor_machine_ranks", "out_neighbor_ranks", "pair_gossip", "pair_gossip_nonblocking",
    "partial_allreduce", "partial_allreduce_", "partial_allreduce_nonblocking", "partial_allreduce_nonblocking_",
    "poll", "rank", "reform", "resume", "RingGraph", "set_machine_topology", "set_skip_negotiate_stage", "set_topology",
    "shutdown", "size", "StarGraph", "suspend", "SymmetricExponentialGraph", "synchronize", "timeline_context",
    "timeline_end_activity", "timeline_start_activity", "topology_util", "turn_off_win_ops_with_associated_p",
    "turn_on_win_ops_with_associated_p", "unified_mpi_window_model_supported", "wait", "win_accumulate",
    "win_accumulate_nonblocking", "win_associated_p", "win_create", "win_free", "win_get", "win_get_nonblocking",
    "win_mutex", "win_poll", "win_put", "win_put_nonblocking", "win_update", "win_update_then_collect", "win_wait",
]
