"""Windows: tensors that neighbors write to and read, without this rank taking part."""

import contextlib

import torch

import dunlin
from dunlin import _dunlin, _survivors
from dunlin.torch import _job
from dunlin.torch._operations import check_tensor, enqueuing, on_device_of


class Window:
    """A tensor of the program, the window's memory behind it, and a mutex for each ordered pair of ranks.

    The memory is on a GPU if the tensors of all ranks are on one that they can use, and host memory otherwise. The
    window's operations take place at once. settle() makes copies by PyTorch complete before such an operation.

    The mutex (owner, other) excludes two ranks from each other: the owner, in whose tensor and buffers something
    happens, and the other rank, which puts there or reads there.
    """

    def __init__(self, tensor, name, zero_init, neighbors):
        self.tensor = tensor
        self.name = name
        self.neighbors = neighbors
        x = check_tensor(tensor)
        gpu = _job.job().common_gpu({x.device})
        x = (x if gpu else x.cpu()).contiguous()
        with on_device_of(x):
            self.memory = dunlin.Window(x, neighbors.source_weights, neighbors.destinations, f"torch {name}", zero_init)
            self.view = torch.from_dlpack(self.memory.tensor) if gpu else torch.from_numpy(self.memory.tensor)
        self.held = set()
        self.mutexes = None
        try:
            self.mutexes = _dunlin.PairMutexes(f"torch {name}")
        except dunlin.Error:
            self.free()
            raise

    def free(self):
        """Frees it. A call after an error continues where the last one stopped."""
        if self.mutexes is not None:
            try:
                self.mutexes.free()
            except dunlin.PeerDeadError:
                self.mutexes = None  # they are freed all the same
                if not _survivors.goes_on():
                    raise
            self.mutexes = None
        self.memory.free()

    def load(self, tensor):
        """Copies a tensor to the window's memory."""
        self.view.copy_(tensor if self.view.is_cuda else tensor.cpu())
        self.settle()

    def store(self, tensor):
        """Copies the window's memory to a tensor."""
        tensor.copy_(self.view)
        self.settle()

    def settle(self):
        """Waits for what PyTorch does with the window's memory."""
        if self.view.is_cuda:
            torch.cuda.current_stream(self.view.device).synchronize()

    def theirs(self, ranks):
        """The mutexes that exclude these ranks from what this rank does at them."""
        own = _job.job().rank
        return [(rank, own) for rank in ranks if rank != own]

    def own(self, ranks=None):
        """The mutexes that exclude these ranks (None: all) from what they do at this rank."""
        own = _job.job().rank
        return [(own, rank) for rank in (range(_job.job().size) if ranks is None else ranks) if rank != own]

    @contextlib.contextmanager
    def locked(self, pairs):
        """Holds the mutexes that this rank doesn't hold yet. All ranks lock in ascending order, against deadlock. If the job
        goes on after deaths, nothing excludes a dead rank.
        """
        with contextlib.ExitStack() as stack:
            for pair in sorted(set(pairs) - self.held):
                try:
                    self.mutexes.lock(*pair)
                except dunlin.PeerDeadError:
                    if not any(map(_survivors.is_gone, pair)):
                        raise
                    continue
                stack.callback(self._unlock, pair)
                self.held.add(pair)
            yield

    def _unlock(self, pair):
        self.held.discard(pair)
        try:
            self.mutexes.unlock(*pair)
        except dunlin.PeerDeadError:
            if not any(map(_survivors.is_gone, pair)):
                raise


def _window(name):
    try:
        return _job.job().windows[name]
    except KeyError:
        raise ValueError(f'there is no window "{name}": call win_create() first') from None


def _among(weights, neighbors, what):
    for other in weights:
        if other not in neighbors:
            raise ValueError(f"{what} has {other!r}, which is not one of this window's neighbors {sorted(neighbors)}")
    return {int(other): float(weight) for other, weight in weights.items()}


def win_create(tensor, name, zero_init=False):
    """Makes a window of a float32 or float64 tensor, with a buffer per in-neighbor of the topology. All ranks call it.
    The tensor is in host memory or on a GPU. If all ranks' tensors are on GPUs, so are the buffers, and deposits
    between ranks of one host do not pass through host memory.

    zero_init: the buffers hold zeros at first; otherwise this rank's tensor. Neighbors write to the buffers. The tensor
    only changes in win_update(), and in win_put() and win_accumulate() by their self_weight.

    Returns whether it was made. It is not if there is a window of that name.
    """
    job = _job.job()
    if name in job.windows:
        _job.logger.error('There is a window "%s" already.', name)
        return False
    if check_tensor(tensor).device.type not in ("cpu", "cuda"):
        raise ValueError(f"the tensor is on {tensor.device}: a window needs a tensor in host memory or on a GPU")
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"a window of {tensor.dtype}: the type has to be float32 or float64")
    with enqueuing("WIN_CREATE", name):
        job.windows[name] = Window(tensor, name, zero_init, job.neighbors)
    return True


def win_free(name=None):
    """Frees the window, or all windows. All ranks call it, in the same order. Returns whether the window existed."""
    windows = _job.job().windows
    if name is None:
        for each in list(windows):
            windows[each].free()
            del windows[each]
        return True
    if name not in windows:
        _job.logger.error('There is no window "%s".', name)
        return False
    windows[name].free()
    del windows[name]
    return True


def win_put(tensor, name, self_weight=None, dst_weights=None, require_mutex=False):
    """Replaces the contents of the out-neighbors' buffers for this rank with weight * tensor. Returns True.

    dst_weights: {rank: weight} of out-neighbors; by default, all of them with 1.0. self_weight: the tensor is
    multiplied by it afterwards. The call doesn't wait: a neighbor sees the whole tensor in its next win_update(). What
    windows do about ranks that have died, with init(on_peer_loss="continue"), help(dunlin.Window) says.
    require_mutex: the call waits until no destination is in a win_mutex(for_self=True) block or in a win_update() with
    require_mutex, and until the tensor has arrived.
    """
    return win_wait(win_put_nonblocking(tensor, name, self_weight, dst_weights, require_mutex))


def win_put_nonblocking(tensor, name, self_weight=None, dst_weights=None, require_mutex=False):
    """win_put() that returns a handle for win_poll() and win_wait(). The tensor may be changed at once."""
    return _deposit("WIN_PUT", tensor, name, self_weight, dst_weights, require_mutex)


def win_accumulate(tensor, name, self_weight=None, dst_weights=None, require_mutex=False):
    """win_put() that adds to the contents of the buffers."""
    return win_wait(win_accumulate_nonblocking(tensor, name, self_weight, dst_weights, require_mutex))


def win_accumulate_nonblocking(tensor, name, self_weight=None, dst_weights=None, require_mutex=False):
    """win_accumulate() that returns a handle for win_poll() and win_wait(). The tensor may be changed at once."""
    return _deposit("WIN_ACCUMULATE", tensor, name, self_weight, dst_weights, require_mutex)


def _deposit(operation, tensor, name, self_weight, dst_weights, require_mutex):
    window = _window(name)
    if dst_weights is None:
        dst_weights = dict.fromkeys(window.neighbors.destinations, 1.0)
    dst_weights = _among(dst_weights, window.neighbors.destinations, "dst_weights")
    self_weight = 1.0 if self_weight is None else float(self_weight)
    x = check_tensor(tensor)
    if x.shape != window.view.shape or x.dtype != window.view.dtype:
        raise ValueError(f'window "{name}" has tensors of {tuple(window.view.shape)}, {window.view.dtype}, not of '
                         f"{tuple(x.shape)}, {x.dtype}")
    # A tensor on another device may have no address.
    is_own = (x.device == window.tensor.device and x.data_ptr() == window.tensor.data_ptr()
              and x.stride() == window.tensor.stride())
    with enqueuing(operation, name), window.locked(window.theirs(dst_weights) if require_mutex else []):
        window.load(x)
        deposit = window.memory.put if operation == "WIN_PUT" else window.memory.accumulate
        deposit(dst_weights, self_weight)
        if self_weight != 1.0:
            window.store(x)
        if not is_own:
            # Others' win_get() reads the window's tensor.
            window.load(check_tensor(window.tensor))
            window.memory.publish()
        if require_mutex:
            # The deposit arrives before another rank gets the mutex.
            window.memory.flush()
    return _done(operation, name)


def win_get(name, src_weights=None, require_mutex=False):
    """Replaces the contents of this rank's buffers with weight * the in-neighbors' tensors. Returns True.

    src_weights: {rank: weight} of in-neighbors; by default, all of them with 1.0. They take no part: their tensors are
    read as of their last operation on the window.
    """
    return win_wait(win_get_nonblocking(name, src_weights, require_mutex))


def win_get_nonblocking(name, src_weights=None, require_mutex=False):
    """win_get() that returns a handle for win_poll() and win_wait(). The operation is over when this returns."""
    window = _window(name)
    if src_weights is None:
        src_weights = dict.fromkeys(window.neighbors.sources, 1.0)
    src_weights = _among(src_weights, window.neighbors.sources, "src_weights")
    with enqueuing("WIN_GET", name), window.locked(window.theirs(src_weights) if require_mutex else []):
        window.memory.get(src_weights)
    return _done("WIN_GET", name)


def _done(operation, name):
    """A handle of an operation that is over: the window keeps deposits that neighbors have not taken yet."""
    job = _job.job()
    job.last_handle += 1
    if job.timeline is not None:
        job.timeline.start(job.last_handle, name, operation)
        job.timeline.finish(job.last_handle, name, operation)
    return job.last_handle


# BlueFog's other names for the same.
neighbor_win_put, neighbor_win_put_nonblocking = win_put, win_put_nonblocking
neighbor_win_accumulate, neighbor_win_accumulate_nonblocking = win_accumulate, win_accumulate_nonblocking
neighbor_win_get, neighbor_win_get_nonblocking = win_get, win_get_nonblocking


def win_poll(handle):
    """Whether the operation is over, so that win_wait() returns at once."""
    return _known(handle)


def win_wait(handle):
    """Waits until the program may use the tensors of a nonblocking operation again. Returns True."""
    return _known(handle)


def _known(handle):
    if not isinstance(handle, int) or not 0 < handle <= _job.job().last_handle:
        raise ValueError(f"{handle!r} is no handle of a window operation")
    return True


def win_update(name, self_weight=None, neighbor_weights=None, reset=False, clone=False, require_mutex=False):
    """Sets the tensor to self_weight * tensor + the sum of weight * buffer over the in-neighbors, and returns it.

    Default weights: those of the topology if it is weighted, otherwise the same for all. neighbor_weights:
    {rank: weight}; the buffers of other in-neighbors are not used. reset: sets the buffers that were used to zero.
    clone: returns a new tensor with the result; the window's tensor stays unchanged. require_mutex: excludes operations
    of neighbors at this rank that have require_mutex, too.
    """
    window = _window(name)
    if (self_weight is None) != (neighbor_weights is None):
        raise ValueError("give both self_weight and neighbor_weights, or none")
    if self_weight is None:
        self_weight, neighbor_weights = window.neighbors.self_weight, window.neighbors.source_weights
    neighbor_weights = _among(neighbor_weights, window.neighbors.sources, "neighbor_weights")
    x = check_tensor(window.tensor)
    neighbors = {*window.neighbors.sources, *window.neighbors.destinations}
    with enqueuing("WIN_UPDATE", name), window.locked(window.own(neighbors) if require_mutex else []):
        window.load(x)
        if clone:
            result = torch.empty_like(window.view)
            with on_device_of(result):
                window.memory.update(float(self_weight), neighbor_weights, reset, out=result)
            return result.to(x.device)
        window.memory.update(float(self_weight), neighbor_weights, reset)
        window.store(x)
    return window.tensor


def win_update_then_collect(name, require_mutex=True):
    """Adds all buffers to the tensor and sets them to zero. No deposit is lost or counted twice. Returns the tensor."""
    window = _window(name)
    return win_update(name, 1.0, dict.fromkeys(window.neighbors.sources, 1.0), True, False, require_mutex)


def get_win_version(name):
    """{in-neighbor: how often its buffer was written since the last win_update() that used it}."""
    return _window(name).memory.versions()


def get_current_created_window_names():
    """The names of all windows, in the order of their creation."""
    return list(_job.job().windows)


@contextlib.contextmanager
def win_mutex(name, for_self=False, ranks=None):
    """Holds mutexes of the window in a `with` statement.

    A mutex excludes two ranks from each other. ranks: any ranks; by default, the out-neighbors. The block excludes the
    operations at these ranks that need a mutex: their win_update(require_mutex=True) if this rank is a neighbor, and
    their win_mutex(for_self=True) blocks that include this rank.
    for_self: the block excludes what `ranks` (by default, all ranks) do at this rank: their win_put(),
    win_accumulate() and win_get() with require_mutex, and their win_mutex() blocks that include this rank.

    Two ranks get a mutex in the order of their requests. If the holder of a mutex dies, the mutex is released.
    """
    window = _window(name)
    ranks = None if ranks is None else _ranks(ranks)
    if for_self:
        pairs = window.own(ranks)
    else:
        pairs = window.theirs(window.neighbors.destinations if ranks is None else ranks)
    with window.locked(pairs):
        yield


def _ranks(ranks):
    size = _job.job().size
    ranks = list(ranks)
    for rank in ranks:
        if isinstance(rank, bool) or not hasattr(rank, "__index__") or not 0 <= rank < size:
            raise ValueError(f"ranks has {rank!r}: there are the ranks 0 .. {size - 1}")
    return [int(rank) for rank in ranks]


def win_associated_p(name):
    """The window's p: 1 at first, then combined like the tensor. The tensor divided by p is push-sum's average."""
    return _window(name).memory.p


def turn_on_win_ops_with_associated_p():
    """Does nothing: every window always has its p."""


def turn_off_win_ops_with_associated_p():
    """Does nothing: see turn_on_win_ops_with_associated_p()."""
