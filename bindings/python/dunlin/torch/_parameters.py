"""Makes parameters and optimizer states the same on all ranks."""

import io
import pickle

import numpy
import torch

import dunlin
from dunlin.torch import _job
from dunlin.torch._operations import allreduce_nonblocking_, broadcast_nonblocking_, synchronize


def broadcast_parameters(params, root_rank):
    """Overwrites tensors with those of the root rank.

    params: a dictionary (such as a state_dict()), or an iterable of tensors or (name, tensor). It has the same tensors
    on all ranks.
    """
    for handle in [broadcast_nonblocking_(tensor, root_rank, name) for name, tensor in _named(params)]:
        synchronize(handle)


def allreduce_parameters(params):
    """Overwrites floating-point tensors with their averages over all ranks. params: as for broadcast_parameters()."""
    handles = [allreduce_nonblocking_(tensor, True, name=name) for name, tensor in _named(params)
               if tensor.is_floating_point()]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(optimizer, root_rank):
    """Gives an optimizer the options and the state of the root rank's optimizer. It need not have any state yet."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of LBFGS can't be broadcast")
    is_root = dunlin.rank() == root_rank
    tensors = []
    skeleton = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    skeleton = _broadcast_object(skeleton, root_rank)
    if not is_root:
        _make_tensors(skeleton, tensors)
    broadcast_parameters(tensors, root_rank)
    if not is_root:
        optimizer.load_state_dict(_with_tensors(skeleton, iter(tensors)))


def _named(params):
    if isinstance(params, dict):
        items = sorted(params.items())
    elif isinstance(params, torch.Tensor) or not hasattr(params, "__iter__"):
        raise ValueError(f"parameters have to be a dictionary or a list, not a {type(params).__name__}")
    else:
        items = [item if isinstance(item, tuple) else (None, item) for item in params]
    # Tied parameters occur several times.
    return list({_identity(tensor): (name, tensor) for name, tensor in items if isinstance(tensor, torch.Tensor)}.values())


def _identity(tensor):
    """Equal for tensors that share their memory, if that can be found out."""
    address = 0
    if tensor.numel():
        try:
            address = tensor.data_ptr()
        except RuntimeError:
            pass  # a tensor without accessible memory; others return 0 for it
    return (tensor.device, address, tensor.shape) if address else id(tensor)


class _Slot:
    """A placeholder for a tensor in a structure that is sent."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype


def _without_tensors(value, tensors):
    if isinstance(value, torch.Tensor):
        tensors.append(value.contiguous())
        return _Slot(tuple(value.shape), value.dtype)
    return _rebuilt(value, lambda item: _without_tensors(item, tensors))


def _make_tensors(value, tensors):
    if isinstance(value, _Slot):
        tensors.append(torch.empty(value.shape, dtype=value.dtype))
    else:
        _rebuilt(value, lambda item: _make_tensors(item, tensors))


def _with_tensors(value, tensors):
    return next(tensors) if isinstance(value, _Slot) else _rebuilt(value, lambda item: _with_tensors(item, tensors))


def _rebuilt(value, change):
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[change(item) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)([change(item) for item in value])
    return value


def _broadcast_object(value, root_rank):
    """Broadcasts any object, by pickle: ranks of a job trust one another, as they share its secret."""
    is_root = dunlin.rank() == root_rank
    place = _job.place_of(root_rank)
    content = numpy.frombuffer(pickle.dumps(value), numpy.uint8).copy() if is_root else None
    length = dunlin.broadcast(numpy.array([content.size if is_root else 0], numpy.int64), place)
    if not is_root:
        content = numpy.empty(int(length[0]), numpy.uint8)
    dunlin.broadcast(content, place, out=content)
    return value if is_root else pickle.load(io.BytesIO(content.tobytes()))
