"""Collectives and neighbor operations on tensors, by handles."""

import contextlib

import torch

import dunlin
from dunlin.torch import _job
from dunlin.torch._matching import matched, resolved

_NATIVE = {torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
           torch.float64}


class Pending:
    """An operation under way, and how its result becomes a tensor."""

    def __init__(self, request, finish, operation, name):
        self.request = request
        self.finish = finish
        self.operation = operation
        self.name = name


def register(pending):
    """A new handle for it."""
    job = _job.job()
    job.last_handle += 1
    job.pending[job.last_handle] = pending
    if job.timeline is not None:
        job.timeline.start(job.last_handle, pending.name, pending.operation)
    return job.last_handle


@contextlib.contextmanager
def enqueuing(operation, name):
    """The activity of starting an operation, in the timeline."""
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
    """Whether the operation of the handle is over, so that synchronize() would not wait."""
    return _pending(handle).request.test()


def synchronize(handle):
    """Waits for the operation and returns its result; the handle is used up.

    Raises a dunlin.Error: PeerDeadError, DeadlineExceededError (a TimeoutError), ...
    """
    pending = _pending(handle)
    job = _job.job()
    try:
        result = pending.request.wait()
    except (KeyboardInterrupt, dunlin.DeadlineExceededError):
        raise  # it goes on, and can be waited for once more
    except BaseException:
        del job.pending[handle]
        raise
    del job.pending[handle]
    if job.timeline is not None:
        job.timeline.finish(handle, pending.name, pending.operation)
    return pending.finish(result)


def wait(handle):
    """synchronize()."""
    return synchronize(handle)


def _pending(handle):
    try:
        return _job.job().pending[handle]
    except (KeyError, TypeError):
        raise ValueError(f"{handle!r} is no handle of an operation under way") from None


def barrier():
    """Returns when all ranks have called it, and what they have put into windows has arrived."""
    for window in _job.job().windows.values():
        window.memory.flush()
    dunlin.barrier()


def check_tensor(tensor):
    """A view without gradients. ValueError where it can't be used."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch.Tensor is needed, not a {type(tensor).__name__}")
    if tensor.device.type == "meta":
        raise ValueError("the tensor is on the meta device, where it has no elements")
    if tensor.is_sparse or not tensor.is_contiguous():
        raise ValueError("the tensor has to be dense and contiguous: call .contiguous() first")
    return tensor.detach()


def _source(tensor):
    """Its elements in host memory, without gradients: a copy where it is elsewhere."""
    return check_tensor(tensor).cpu()  # waits for what the current stream still does with it


def _target(tensor):
    """Host memory for what is to be in the tensor, and a function of the request's result that returns the tensor
    with it. Its elements are there only where it is in host memory itself.
    """
    x = check_tensor(tensor)
    if x.device.type == "cpu":
        return x, lambda _: tensor
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=x.is_cuda)

    def finish(_):
        x.copy_(host)
        return tensor

    return host, finish


def _like(tensor):
    """A new tensor for a result."""
    return torch.empty_like(check_tensor(tensor))


def _as_bytes(tensor):
    """Its memory, without axes."""
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1).view(torch.uint8)


def _averaged(tensor, what):
    if not tensor.dtype.is_floating_point:
        raise ValueError(f"{what} of {tensor.dtype}: only floating-point tensors have an average")


# All-reduce, broadcast, all-gather


def allreduce(tensor, average=True, is_hierarchical_local=False, name=None):
    """The average (or sum) of all ranks' tensors, as a new tensor; the same on all ranks.

    Nonblocking, the tensor is not to be changed until synchronize(), as with all of these.
    is_hierarchical_local: of this machine's ranks only. All ranks call these in the same order.
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
    target, finish = _target(output)
    with enqueuing("ALLREDUCE", name):
        request = communicator.start_all_reduce(_source(x), "avg" if average else "sum", out=target)
    return register(Pending(request, finish, "ALLREDUCE", name))


def partial_allreduce(tensor, ranks, average=True, number=None, name=None):
    """allreduce() among `ranks` alone, this one among them; they may be others in each call.

    number: as in dunlin.partial_all_reduce(), by which these calls meet. None: counted, where all ranks make as many.
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
                                                  target)
    return register(Pending(request, finish, "PARTIAL_ALLREDUCE", name))


def broadcast(tensor, root_rank, name=None):
    """The tensor of the root rank, as a new tensor on all ranks."""
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
    if dunlin.rank() == root_rank:
        x, finish = _source(tensor), lambda _: tensor
    else:
        x, finish = _target(tensor)
    if x.dtype not in _NATIVE:
        x = _as_bytes(x)
    with enqueuing("BROADCAST", name):
        request = dunlin.start_broadcast(x, root_rank, out=x)
    return register(Pending(request, finish, "BROADCAST", name))


def allgather(tensor, name=None):
    """All ranks' tensors one after the other along the first axis, in which they may differ."""
    return synchronize(allgather_nonblocking(tensor, name))


def allgather_nonblocking(tensor, name=None):
    """allgather() that returns a handle at once."""
    job = _job.job()
    others = [(job.rank + distance) % job.size for distance in range(1, job.size)]
    return _gather(tensor, range(job.size), others, f"allgather {name or ''}", "ALLGATHER", name)


def _gather(tensor, sources, destinations, key, operation, name):
    """Tensors of the sources in that order, this rank's own among them where it is a source."""
    x = check_tensor(tensor)
    if x.dim() == 0:
        x = x.reshape(1)
    own = _job.job().rank
    copy = x.clone() if x.device.type == "cpu" else _source(x)  # what the result needs of it at the end
    row = copy.shape[1:]
    row_bytes = row.numel() * copy.element_size()
    # Others of this name mean something else.
    key += f" of {copy.dtype} {tuple(row)}"
    as_sent = _as_bytes(copy).reshape(copy.shape[0] if row_bytes else 0, row_bytes)
    with enqueuing(operation, name):
        request = dunlin.start_neighbor_gather(as_sent, [source for source in sources if source != own], destinations,
                                               name=key)

    def finish(parts):
        parts = iter(parts)
        tensors = [copy if source == own else torch.from_numpy(next(parts)).reshape(-1).view(copy.dtype).reshape(-1, *row)
                   for source in sources] if row_bytes else []
        return (torch.cat(tensors) if tensors else copy.new_empty((0, *row))).to(tensor.device)

    return register(Pending(request, finish, operation, name))


# Operations with neighbors


def neighbor_allgather(tensor, *, src_ranks=None, dst_ranks=None, enable_topo_check=True, name=None):
    """The in-neighbors' tensors one after the other along the first axis, in the order of their ranks.

    src_ranks, dst_ranks: other neighbors than the topology's, both or none. enable_topo_check: ValueError on all ranks
    where they don't match, instead of a DeadlineExceededError.
    """
    return synchronize(neighbor_allgather_nonblocking(tensor, src_ranks=src_ranks, dst_ranks=dst_ranks,
                                                      enable_topo_check=enable_topo_check, name=name))


def neighbor_allgather_nonblocking(tensor, *, src_ranks=None, dst_ranks=None, enable_topo_check=True, name=None):
    """neighbor_allgather() that returns a handle at once (after the check, where there is one)."""
    job = _job.job()
    if (src_ranks is None) != (dst_ranks is None):
        raise ValueError("src_ranks and dst_ranks: both or none")
    if src_ranks is None:
        sources, destinations = job.neighbors.sources, job.neighbors.destinations
    else:
        sources = dict.fromkeys(sorted(src_ranks), 1.0)
        destinations = dict.fromkeys(dst_ranks, 1.0)
        sources, destinations = matched(sources, destinations, enable_topo_check, job.rank, job.size)
    return _gather(tensor, list(sources), list(destinations), f"neighbor_allgather {name or ''}", "NEIGHBOR_ALLGATHER", name)


def neighbor_allreduce(tensor, *, self_weight=None, src_weights=None, dst_weights=None, enable_topo_check=True,
                       name=None):
    """self_weight * tensor + the sum over the sources of their weight * their tensor, as a new tensor.

    Without weights: with the in-neighbors of the topology. Else
      self_weight, src_weights               pull: {rank to receive from: what it weighs}
      self_weight, dst_weights               push: {rank to send to: what the tensor is multiplied with}
      self_weight, src_weights, dst_weights  both; dst_weights may be a list of ranks: 1.0 each
    with any ranks. Calls meet by name: the k-th of a name here with the k-th of that name there.

    enable_topo_check: with weights, all ranks call it together (an all-gather of a byte per pair); ValueError on all of
        them where sources and destinations don't match, and everything goes on as before. It finds destinations, or
        sources, that are not given. Without it they are the topology's, the others have to be among those (0.0 for
        the rest), and what doesn't match ends with DeadlineExceededError, or meets a later call of the name.
    """
    return synchronize(neighbor_allreduce_nonblocking(tensor, self_weight=self_weight, src_weights=src_weights,
                                                      dst_weights=dst_weights, enable_topo_check=enable_topo_check,
                                                      name=name))


def neighbor_allreduce_nonblocking(tensor, *, self_weight=None, src_weights=None, dst_weights=None,
                                   enable_topo_check=True, name=None):
    """neighbor_allreduce() that returns a handle at once (after the check, where there is one)."""
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
    self_weight, sources, destinations = resolved(job.neighbors, job.rank, job.size, self_weight, src_weights,
                                                   dst_weights, enable_topo_check)
    target, finish = _target(output)
    with enqueuing("NEIGHBOR_ALLREDUCE", name):
        request = dunlin.start_neighbor_average(_source(x), sources, destinations, self_weight,
                                                f"allreduce {name or ''}", out=target)
    return register(Pending(request, finish, "NEIGHBOR_ALLREDUCE", name))


def pair_gossip(tensor, target_rank, self_weight=None, pair_weight=None, name=None):
    """self_weight * tensor + pair_weight * the tensor of the target rank, who calls it with this rank; 0.5 each."""
    return synchronize(pair_gossip_nonblocking(tensor, target_rank, self_weight, pair_weight, name))


def pair_gossip_nonblocking(tensor, target_rank, self_weight=None, pair_weight=None, name=None):
    """pair_gossip() that returns a handle at once."""
    if (self_weight is None) != (pair_weight is None):
        raise ValueError("self_weight and pair_weight: both or none")
    weights = (0.5, 0.5) if self_weight is None else (self_weight, pair_weight)
    x = check_tensor(tensor)
    _averaged(x, "pair_gossip")
    target, finish = _target(torch.empty_like(x))
    with enqueuing("PAIR_GOSSIP", name):
        request = dunlin.start_neighbor_average(_source(x), {target_rank: weights[1]}, {target_rank: 1.0}, weights[0],
                                                f"gossip {name or ''}", out=target)
    return register(Pending(request, finish, "PAIR_GOSSIP", name))


def hierarchical_neighbor_allreduce(tensor, *, self_weight=None, src_machine_weights=None, dst_machine_weights=None,
                                    enable_topo_check=False, name=None):
    """neighbor_allreduce() of machines: of the averages of their ranks. Every rank of a machine gets the same.

    Weights are by machine, and the same on all ranks of one; without any, set_machine_topology() says who is whose
    neighbor. All ranks of a machine make these calls in the same order.
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
