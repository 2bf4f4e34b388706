"""Collectives and operations with neighbors on tensors, blocking and with handles."""

import contextlib

import torch

import dunlin
from dunlin import _dunlin, _survivors
from dunlin.torch import _job
from dunlin.torch._matching import matched, on_death, resolved

_NATIVE = {torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
           torch.float64}


class Pending:
    """An operation in progress, and a function that turns its result into a tensor."""

    def __init__(self, request, finish, operation, name):
        self.request = request
        self.finish = finish
        self.operation = operation
        self.name = name


def register(pending):
    """Returns a new handle for the operation."""
    job = _job.job()
    job.last_handle += 1
    job.pending[job.last_handle] = pending
    if job.timeline is not None:
        job.timeline.start(job.last_handle, pending.name, pending.operation)
    return job.last_handle


@contextlib.contextmanager
def enqueuing(operation, name):
    """Records the start of an operation in the timeline."""
    timeline = _job.job().timeline
    if timeline is None:
        yield
        return
    timeline.begin(name, "ENQUEUE_" + operation)
    try:
        yield
    finally:
        timeline.end(name)


def poll(handle):
    """Whether the operation of the handle is over, so that synchronize() returns at once."""
    return _pending(handle).request.test()


def synchronize(handle):
    """Waits for the operation and returns its result. The handle is invalid afterwards.

    Raises a dunlin.Error: PeerDeadError, DeadlineExceededError (a TimeoutError), ... After DeadlineExceededError and
    KeyboardInterrupt the operation continues and the handle stays valid.
    """
    pending = _pending(handle)
    job = _job.job()
    try:
        result = pending.request.wait()
    except (KeyboardInterrupt, dunlin.DeadlineExceededError):
        raise  # the operation continues, and can be waited for again
    except BaseException:
        del job.pending[handle]
        raise
    del job.pending[handle]
    if job.timeline is not None:
        job.timeline.finish(handle, pending.name, pending.operation)
    return pending.finish(result)


def wait(handle):
    """The same as synchronize()."""
    return synchronize(handle)


def _pending(handle):
    try:
        return _job.job().pending[handle]
    except (KeyError, TypeError):
        raise ValueError(f"{handle!r} is no handle of an operation in progress") from None


def barrier():
    """Returns when all ranks have called it and all their deposits in windows have arrived."""
    for window in _job.job().windows.values():
        window.memory.flush()
    dunlin.barrier()


def check_tensor(tensor):
    """A view without gradients. ValueError if the tensor can't be used."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch.Tensor is needed, not a {type(tensor).__name__}")
    if tensor.device.type == "meta":
        raise ValueError("the tensor is on the meta device, where it has no elements")
    if tensor.layout is not torch.strided:
        raise ValueError("the tensor has to be dense: call .to_dense() first")
    return tensor.detach()


def on_device_of(tensor):
    """Makes the GPU of the tensor current, so that an operation comes behind its current stream."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def _source(tensor):
    """The tensor in host memory, contiguous, without gradients: itself, or a copy if it isn't."""
    return check_tensor(tensor).cpu().contiguous()  # waits for the current stream


def _target(tensor):
    """(memory, finish): host memory for the result, and a function that brings it into the tensor and returns that.

    The memory is that of the tensor if it is in host memory and contiguous. Otherwise it is not initialized.
    """
    x = check_tensor(tensor)
    if x.device.type == "cpu" and x.is_contiguous():
        return x, lambda _: tensor
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=x.is_cuda)

    def finish(_):
        x.copy_(host)
        return tensor

    return host, finish


def _target_on(device, tensor):
    """The same as _target() in memory of a GPU."""
    x = check_tensor(tensor)
    if x.device == device and x.is_contiguous():
        return x, lambda _: tensor
    memory = torch.empty(x.shape, dtype=x.dtype, device=device)

    def finish(_):
        x.copy_(memory)
        return tensor

    return memory, finish


def _started(communicator, tensor, output, start):
    """(request, finish) of start(source, target), which reads the tensor and writes to the output, or to copies.

    The copies are on the GPU if all ranks of the communicator can use theirs, and in host memory otherwise. The ranks
    agree on that when they first pass CUDA tensors to the communicator, which remembers it. Other errors are raised.
    """
    x = check_tensor(tensor)
    if x.is_cuda:
        job = _job.job()
        job.gpu = job.gpu or x.device
        if job.can_use_gpu(communicator):
            target, finish = _target_on(job.gpu, output)
            with on_device_of(target):
                return start(x.to(job.gpu).contiguous(), target), finish
    target, finish = _target(output)
    return start(_source(x), target), finish


def _like(tensor):
    """A new tensor for a result."""
    return torch.empty_like(check_tensor(tensor))


def _as_bytes(tensor):
    """A view of the tensor's memory, without axes."""
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1).view(torch.uint8)


def _averaged(tensor, what):
    if not tensor.dtype.is_floating_point:
        raise ValueError(f"{what} of {tensor.dtype}: only floating-point tensors have an average")


# All-reduce, broadcast, all-gather


def allreduce(tensor, average=True, is_hierarchical_local=False, name=None):
    """Returns the average (or the sum) of all ranks' tensors as a new tensor. It is the same on all ranks.

    is_hierarchical_local: over this machine's ranks only. All ranks make these calls in the same order. As with all
    nonblocking operations, a tensor must not be changed between allreduce_nonblocking() and synchronize().
    """
    return synchronize(allreduce_nonblocking(tensor, average, is_hierarchical_local, name))


def allreduce_nonblocking(tensor, average=True, is_hierarchical_local=False, name=None):
    """allreduce() that returns a handle at once, for poll() and synchronize()."""
    return _allreduce(tensor, _like(tensor), average, is_hierarchical_local, name)


def allreduce_(tensor, average=True, is_hierarchical_local=False, name=None):
    """allreduce() into the tensor itself, which it returns."""
    return synchronize(allreduce_nonblocking_(tensor, average, is_hierarchical_local, name))


def allreduce_nonblocking_(tensor, average=True, is_hierarchical_local=False, name=None):
    """allreduce_() that returns a handle at once."""
    return _allreduce(tensor, tensor, average, is_hierarchical_local, name)


def _allreduce(tensor, output, average, is_local, name):
    x = check_tensor(tensor)
    if average:
        _averaged(x, "the average")
    communicator = _job.job().local if is_local else dunlin.world()

    def start(source, target):
        with enqueuing("ALLREDUCE", name):
            return communicator.start_all_reduce(source, "avg" if average else "sum", out=target, name=name or "")

    return register(Pending(*_started(communicator, x, output, start), "ALLREDUCE", name))


def partial_allreduce(tensor, ranks, average=True, number=None, name=None):
    """allreduce() among `ranks` alone, which include this one. They may differ from call to call.

    number: as in dunlin.partial_all_reduce(), which matches calls by it. None: calls are counted; that fits if all
    ranks make the same number of calls.
    name: calls under one number whose names differ raise dunlin.InvalidArgumentError.
    """
    return synchronize(partial_allreduce_nonblocking(tensor, ranks, average, number, name))


def partial_allreduce_nonblocking(tensor, ranks, average=True, number=None, name=None):
    """partial_allreduce() that returns a handle at once."""
    return _partial_allreduce(tensor, _like(tensor), ranks, average, number, name)


def partial_allreduce_(tensor, ranks, average=True, number=None, name=None):
    """partial_allreduce() into the tensor itself, which it returns."""
    return synchronize(partial_allreduce_nonblocking_(tensor, ranks, average, number, name))


def partial_allreduce_nonblocking_(tensor, ranks, average=True, number=None, name=None):
    """partial_allreduce_() that returns a handle at once."""
    return _partial_allreduce(tensor, tensor, ranks, average, number, name)


def _partial_allreduce(tensor, output, ranks, average, number, name):
    x = check_tensor(tensor)
    if average:
        _averaged(x, "the average")
    target, finish = _target(output)
    with enqueuing("PARTIAL_ALLREDUCE", name):
        request = dunlin.start_partial_all_reduce(_source(x), ranks, "avg" if average else "sum", "torch", number,
                                                  target, name or "")
    return register(Pending(request, finish, "PARTIAL_ALLREDUCE", name))


def broadcast(tensor, root_rank, name=None):
    """Returns the tensor of the root rank as a new tensor, on all ranks."""
    return synchronize(broadcast_nonblocking(tensor, root_rank, name))


def broadcast_nonblocking(tensor, root_rank, name=None):
    """broadcast() that returns a handle at once."""
    x = check_tensor(tensor)
    return _broadcast(x.clone() if dunlin.rank() == root_rank else _like(x), root_rank, name)


def broadcast_(tensor, root_rank, name=None):
    """broadcast() into the tensor itself, which it returns."""
    return synchronize(broadcast_nonblocking_(tensor, root_rank, name))


def broadcast_nonblocking_(tensor, root_rank, name=None):
    """broadcast_() that returns a handle at once."""
    return _broadcast(tensor, root_rank, name)


def _broadcast(tensor, root_rank, name):
    is_root = dunlin.rank() == root_rank

    def start(source, target):
        x = source if is_root else target
        if x.dtype not in _NATIVE:
            x = _as_bytes(x)
        with enqueuing("BROADCAST", name):
            return dunlin.start_broadcast(x, _job.place_of(root_rank), out=x, name=name or "")

    request, finish = _started(dunlin.world(), tensor, tensor, start)
    return register(Pending(request, (lambda _: tensor) if is_root else finish, "BROADCAST", name))


def allgather(tensor, name=None):
    """Returns all ranks' tensors, concatenated along the first axis, whose lengths may differ; with
    init(on_peer_loss="continue"), without those of dead ranks."""
    return synchronize(allgather_nonblocking(tensor, name))


def allgather_nonblocking(tensor, name=None):
    """allgather() that returns a handle at once."""
    job = _job.job()
    others = [(job.rank + distance) % job.size for distance in range(1, job.size)]
    return _gather(tensor, range(job.size), others, f"allgather {name or ''}", "ALLGATHER", name)


def _gather(tensor, sources, destinations, key, operation, name):
    """Concatenates the tensors of the sources in their order. This rank may be one of them."""
    x = check_tensor(tensor)
    if x.dim() == 0:
        x = x.reshape(1)
    own = _job.job().rank
    # The result needs the tensor as it is now; the caller may change it before the gather ends.
    copy = x.clone(memory_format=torch.contiguous_format) if x.device.type == "cpu" else _source(x)
    row = copy.shape[1:]
    row_bytes = row.numel() * copy.element_size()
    # Tensors of other types and shapes don't match under the same name.
    key += f" of {copy.dtype} {tuple(row)}"
    as_sent = _as_bytes(copy).reshape(copy.shape[0] if row_bytes else 0, row_bytes)
    with enqueuing(operation, name):
        request = dunlin.start_neighbor_gather(as_sent, [source for source in sources if source != own], destinations,
                                               name=key)

    def finish(parts):
        parts = iter(parts)
        arrays = [copy if source == own else next(parts) for source in sources] if row_bytes else []
        tensors = [array if array is copy else torch.from_numpy(array).reshape(-1).view(copy.dtype).reshape(-1, *row)
                   for array in arrays if array is not None]  # None: the source is dead
        return (torch.cat(tensors) if tensors else copy.new_empty((0, *row))).to(tensor.device)

    return register(Pending(request, finish, operation, name))


# Operations with neighbors


def neighbor_allgather(tensor, *, src_ranks=None, dst_ranks=None, enable_topo_check=True, name=None):
    """Returns the in-neighbors' tensors, concatenated along the first axis in the order of their ranks.

    src_ranks, dst_ranks: neighbors instead of those of the topology; give both or none. The result has the tensors in
    the order of src_ranks. enable_topo_check: ValueError on all ranks if they don't match, instead of a
    DeadlineExceededError. With init(on_peer_loss="continue"), the tensors of dead ranks are left out.
    """
    return synchronize(neighbor_allgather_nonblocking(tensor, src_ranks=src_ranks, dst_ranks=dst_ranks,
                                                      enable_topo_check=enable_topo_check, name=name))


def neighbor_allgather_nonblocking(tensor, *, src_ranks=None, dst_ranks=None, enable_topo_check=True, name=None):
    """neighbor_allgather() that returns a handle at once, or after the check if it is enabled."""
    job = _job.job()
    if (src_ranks is None) != (dst_ranks is None):
        raise ValueError("give both src_ranks and dst_ranks, or none")
    if src_ranks is None:
        sources, destinations = job.neighbors.sources, job.neighbors.destinations
    else:
        sources = dict.fromkeys(src_ranks, 1.0)
        destinations = dict.fromkeys(dst_ranks, 1.0)
        sources, destinations = matched(sources, destinations, enable_topo_check, job.rank, job.size)
    return _gather(tensor, list(sources), list(destinations), f"neighbor_allgather {name or ''}", "NEIGHBOR_ALLGATHER", name)


def neighbor_allreduce(tensor, *, self_weight=None, src_weights=None, dst_weights=None, enable_topo_check=True,
                       name=None):
    """Returns self_weight * tensor + the sum over the sources of weight * the source's tensor, as a new tensor.

    Without weights, the sources are the in-neighbors of the topology. With weights, they are any ranks:
      self_weight, src_weights               pull: {rank to receive from: the weight of its tensor}
      self_weight, dst_weights               push: {rank to send to: the factor of this rank's tensor}
      self_weight, src_weights, dst_weights  both; dst_weights may be a list of ranks, with 1.0 each
    The k-th call of a name on one rank matches the k-th call of that name on another.

    enable_topo_check: if weights are given, all ranks make the call together (it costs an all-gather of a byte per pair
        of ranks). If sources and destinations don't match, it raises ValueError on all ranks, which may continue. The
        check also finds the destinations, or sources, that are not given. Without the check, those are the topology's;
        the given ranks have to be among the topology's neighbors as well, of which the others get 0.0. A call that
        doesn't match then raises DeadlineExceededError, or matches a later call of the name.

    CUDA tensors are averaged on the GPU if all ranks can. The ranks agree on that in the first operation of all ranks on
    CUDA tensors, which is therefore one that all ranks make.

    With init(on_peer_loss="continue"), it goes on without neighbors that have died (see dunlin.neighbor_average()):
      pull, and by default  the tensor takes the place of a dead source's, with its weight
      push                  dead sources are left out, and dead destinations' weights are added to self_weight
    With both src_weights and dst_weights, one of them has weights of 1; otherwise InvalidArgumentError. Calls in which
    enable_topo_check makes all ranks take part raise PeerDeadError after a death, until reform().
    """
    return synchronize(neighbor_allreduce_nonblocking(tensor, self_weight=self_weight, src_weights=src_weights,
                                                      dst_weights=dst_weights, enable_topo_check=enable_topo_check,
                                                      name=name))


def neighbor_allreduce_nonblocking(tensor, *, self_weight=None, src_weights=None, dst_weights=None,
                                   enable_topo_check=True, name=None):
    """neighbor_allreduce() that returns a handle at once, or after the check if it is enabled."""
    return _neighbor_allreduce(tensor, _like(tensor), self_weight, src_weights,
                               dst_weights, enable_topo_check, name)


def neighbor_allreduce_(tensor, *, self_weight=None, src_weights=None, dst_weights=None, enable_topo_check=True,
                        name=None):
    """neighbor_allreduce() into the tensor itself, which it returns."""
    return synchronize(neighbor_allreduce_nonblocking_(tensor, self_weight=self_weight, src_weights=src_weights,
                                                       dst_weights=dst_weights, enable_topo_check=enable_topo_check,
                                                       name=name))


def neighbor_allreduce_nonblocking_(tensor, *, self_weight=None, src_weights=None, dst_weights=None,
                                    enable_topo_check=True, name=None):
    """neighbor_allreduce_() that returns a handle at once."""
    return _neighbor_allreduce(tensor, tensor, self_weight, src_weights, dst_weights, enable_topo_check, name)


def _neighbor_allreduce(tensor, output, self_weight, src_weights, dst_weights, enable_topo_check, name):
    job = _job.job()
    x = check_tensor(tensor)
    _averaged(x, "neighbor_allreduce")
    when_dead = on_death(src_weights, dst_weights)
    self_weight, sources, destinations = resolved(job.neighbors, job.rank, job.size, self_weight, src_weights,
                                                   dst_weights, enable_topo_check)

    def start(source, target):
        with enqueuing("NEIGHBOR_ALLREDUCE", name):
            return _dunlin.start_neighbor_average(source, sources, destinations, self_weight, f"allreduce {name or ''}",
                                                  target, when_dead)

    return register(Pending(*_started(dunlin.world(), x, output, start), "NEIGHBOR_ALLREDUCE", name))


def pair_gossip(tensor, target_rank, self_weight=None, pair_weight=None, name=None):
    """Returns self_weight * tensor + pair_weight * the target rank's tensor. The target rank calls it with this rank.

    Both weights are 0.5 by default. With init(on_peer_loss="continue"), the tensor takes the place of a dead target's.
    """
    return synchronize(pair_gossip_nonblocking(tensor, target_rank, self_weight, pair_weight, name))


def pair_gossip_nonblocking(tensor, target_rank, self_weight=None, pair_weight=None, name=None):
    """pair_gossip() that returns a handle at once."""
    if (self_weight is None) != (pair_weight is None):
        raise ValueError("give both self_weight and pair_weight, or none")
    weights = (0.5, 0.5) if self_weight is None else (self_weight, pair_weight)
    x = check_tensor(tensor)
    _averaged(x, "pair_gossip")
    target, finish = _target(torch.empty_like(x))
    with enqueuing("PAIR_GOSSIP", name):
        request = _dunlin.start_neighbor_average(
            _source(x), {target_rank: weights[1]}, {target_rank: 1.0}, weights[0], f"gossip {name or ''}", target,
            _survivors.OWN_DATA if _survivors.goes_on() else _survivors.RAISE)
    return register(Pending(request, finish, "PAIR_GOSSIP", name))


def hierarchical_neighbor_allreduce(tensor, *, self_weight=None, src_machine_weights=None, dst_machine_weights=None,
                                    enable_topo_check=False, name=None):
    """neighbor_allreduce() of machines: it combines the averages over their ranks, and gives all ranks the result.

    Weights are by machine, and the same on all ranks of a machine. Without weights, set_machine_topology() gives the
    neighbors. All ranks of a machine make these calls in the same order. UnavailableError with
    init(on_peer_loss="continue"), as all ranks of a machine are needed.
    """
    return synchronize(hierarchical_neighbor_allreduce_nonblocking(
        tensor, self_weight=self_weight, src_machine_weights=src_machine_weights,
        dst_machine_weights=dst_machine_weights, enable_topo_check=enable_topo_check, name=name))


def hierarchical_neighbor_allreduce_nonblocking(tensor, *, self_weight=None, src_machine_weights=None,
                                                dst_machine_weights=None, enable_topo_check=False, name=None):
    """hierarchical_neighbor_allreduce() that returns a handle at once."""
    return _hierarchical(tensor, _like(tensor), self_weight, src_machine_weights,
                         dst_machine_weights, enable_topo_check, name)


def hierarchical_neighbor_allreduce_(tensor, *, self_weight=None, src_machine_weights=None, dst_machine_weights=None,
                                     enable_topo_check=False, name=None):
    """hierarchical_neighbor_allreduce() into the tensor itself, which it returns."""
    return synchronize(hierarchical_neighbor_allreduce_nonblocking_(
        tensor, self_weight=self_weight, src_machine_weights=src_machine_weights,
        dst_machine_weights=dst_machine_weights, enable_topo_check=enable_topo_check, name=name))


def hierarchical_neighbor_allreduce_nonblocking_(tensor, *, self_weight=None, src_machine_weights=None,
                                                 dst_machine_weights=None, enable_topo_check=False, name=None):
    """hierarchical_neighbor_allreduce_() that returns a handle at once."""
    return _hierarchical(tensor, tensor, self_weight, src_machine_weights, dst_machine_weights, enable_topo_check, name)


def _hierarchical(tensor, output, self_weight, src_weights, dst_weights, enable_topo_check, name):
    job = _job.job()
    _survivors.refuse("hierarchical_neighbor_allreduce")
    x = check_tensor(tensor)
    _averaged(x, "hierarchical_neighbor_allreduce")
    job.need_homogeneous("hierarchical_neighbor_allreduce")
    if job.machine_neighbors is None and self_weight is None and src_weights is None and dst_weights is None:
        raise ValueError("there is no topology of machines: call set_machine_topology() first, or give weights")
    self_weight, sources, destinations = resolved(job.machine_neighbors, job.machine_rank, len(job.machines),
                                                   self_weight, src_weights, dst_weights, enable_topo_check)
    target, finish = _target(output)
    with enqueuing("HIERARCHICAL_NEIGHBOR_ALLREDUCE", name):
        request = job.machine_averages.start_average(_source(x), sources, destinations, self_weight, name or "",
                                                     out=target)
    return register(Pending(request, finish, "HIERARCHICAL_NEIGHBOR_ALLREDUCE", name))
