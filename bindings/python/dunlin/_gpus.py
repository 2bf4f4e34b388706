"""What the ranks agree on before they combine tensors on GPUs."""

import numpy

import dunlin


def can_all_use(device):
    """Whether all ranks' tensors can be combined on GPUs. Collective over all ranks.

    device: the torch.device of this rank's tensors; None: they are not on one GPU.
    """
    is_on_gpu = device is not None and device.type == "cuda"
    if int(dunlin.all_reduce(numpy.array([is_on_gpu], numpy.int64), "min")[0]) == 0:
        return False
    return dunlin.world().can_use_gpu(device.index)
