"""A rank of gpu_job_test.py, which checks every line that it prints: dunlin-run -n N python3 gpu_rank.py PART"""

import os
import signal
import sys
import time

import dunlin
import numpy as np


def say(text):
    print(text, flush=True)


class Claiming:
    """An array that claims to be in the memory of a GPU."""

    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}


class ClaimingByDlpack:
    def __dlpack__(self, stream=None):
        raise AssertionError("without a driver nothing is exported")

    def __dlpack_device__(self):
        return (2, 0)


def without_driver():
    for array in (Claiming(), ClaimingByDlpack()):
        try:
            dunlin.all_reduce(array)
            say("no error")
        except dunlin.UnavailableError as error:
            say(f"refused: {error}")
    # A call that fails before it begins leaves the job as it is.
    say(f"sum {dunlin.all_reduce(np.ones(1))[0]:.0f}")


def ones(count=5000, stream=None):
    import gpu_arrays
    gpu_arrays.use(0)
    return gpu_arrays.Interfaced(np.ones(count, "float32"), stream=stream)


def value(array):
    import gpu_arrays
    found = gpu_arrays.elements(array)
    return f"{found[0]:.0f}" if (found == found[0]).all() else "several values"


def say_in_use(request, open_gate):
    """The request's memory is in use until the gate is open."""
    say(f"in use {not request.test()}")
    open_gate()
    try:
        request.wait()
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead")


def say_value_or_closed(request):
    try:
        say(value(request.wait()))
    except dunlin.ClosedError:
        say("closed")


def shut_down_in_progress():
    try:
        dunlin.shutdown()
        say("no error")
    except dunlin.DeadlineExceededError:
        say("left in progress")


def go_on(stream, open_gate):
    open_gate()
    stream.finish()
    time.sleep(0.3)
    say("alive")


def mixed():
    """The first call of a rank is on memory of a GPU, and that of the others on host memory."""
    x = ones() if dunlin.rank() == 0 else np.ones(5000, "float32")
    try:
        dunlin.all_reduce(x)
        say("no error")
    except dunlin.InvalidArgumentError as error:
        say(f"refused: {error}")


def different():
    """Calls on memory of GPUs that don't match."""
    x = ones()
    dunlin.all_reduce(x)
    try:
        (dunlin.all_reduce if dunlin.rank() == 0 else dunlin.all_gather)(x)
        say("no error")
    except dunlin.InvalidArgumentError as error:
        say(f"refused: {error}")


def unreachable():
    """No transport between two hosts takes memory of GPUs."""
    x = ones()
    for _ in range(2):
        try:
            dunlin.all_reduce(x)
            say("no error")
        except dunlin.UnavailableError as error:
            say(f"refused: {error}")
    say(f"sum {dunlin.all_reduce(np.ones(1))[0]:.0f}")


def unusable():
    """One rank can't use its GPU. All ranks are told, and may begin anew."""
    import gpu_arrays
    x = ones()
    for name in ("cuModuleLoadData", "cuStreamCreate", "cuMemAlloc", "cuEventCreate"):
        before = gpu_arrays.counts()[0]
        if dunlin.rank() == 1:
            gpu_arrays.CUDA.fake_cuda_fail(name.encode())
        try:
            dunlin.all_reduce(x, out=x)
            say("no error")
        except dunlin.Error as error:
            say(f"refused: {error}")
    say(value(dunlin.all_reduce(x)))
    # The communicator that the members had formed before the last failure is dropped.
    for _ in range(20):
        dunlin.barrier()
        time.sleep(0.01)
    used = gpu_arrays.counts()[0] - before
    part = dunlin.split(0)
    part.all_reduce(x)
    say(f"{used - (gpu_arrays.counts()[0] - before - used)} allocations are left")


def failing():
    """A copy of one rank fails. It tells the reason, then and at each later call. The others don't hang."""
    import gpu_arrays
    x = ones(100_000)
    dunlin.all_reduce(x)
    dunlin.barrier()
    if dunlin.rank() == 1:
        gpu_arrays.CUDA.fake_cuda_fail(b"cuMemcpyAsync")
    for _ in range(2):
        try:
            dunlin.start_all_reduce(x).wait(timeout=1)
            say("no error")
        except dunlin.Error as error:
            say(f"{type(error).__name__}: {error}")
    say(f"sum {dunlin.start_all_reduce(np.ones(1)).wait(timeout=60)[0]:.0f}")


def standing():
    """A stream of the caller that stands still. The wait ends in time, and the call goes on with the stream."""
    import gpu_arrays
    stream = gpu_arrays.Stream()
    x = ones(stream=stream)
    dunlin.all_reduce(x)
    open_gate = stream.gate() if dunlin.rank() == 0 else lambda: None
    request = dunlin.start_all_reduce(x)
    try:
        request.wait(timeout=0.3)
        say("no error")
    except dunlin.DeadlineExceededError as error:
        say(f"expired: {error}")
    dunlin.barrier()
    open_gate()
    say(value(request.wait()))


def killed():
    import gpu_arrays
    stream = gpu_arrays.Stream()
    x = ones(stream=stream)
    long = ones(100_000)
    dunlin.all_reduce(x)
    dunlin.all_reduce(long)
    dunlin.barrier()
    if dunlin.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        try:
            while True:
                dunlin.all_reduce(long)
                dunlin.all_reduce(x)
        except dunlin.PeerDeadError as error:
            say(f"peer {error.peer} dead")


def killed_while_the_memory_is_in_use():
    import gpu_arrays
    stream = gpu_arrays.Stream()
    x = ones(stream=stream)
    dunlin.all_reduce(x)
    first = dunlin.start_all_reduce(x)
    open_gate = stream.gate()
    dunlin.barrier()
    if dunlin.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    request = None
    try:
        first.wait()  # may have ended before the death
        second = dunlin.start_all_reduce(ones())
        request = dunlin.start_all_reduce(x)
        second.wait()
        say("no error")
    except dunlin.PeerDeadError as error:
        say(f"peer {error.peer} dead")
    except dunlin.DeadlineExceededError as error:
        say(f"late: {error}")
    if request is not None:
        say_in_use(request, open_gate)


def left_open():
    """The job ends while a call waits for a stream of the caller, which goes on meanwhile."""
    import threading

    import gpu_arrays
    stream = gpu_arrays.Stream()
    x = ones(stream=stream)
    dunlin.all_reduce(x)
    open_gate = stream.gate()
    request = dunlin.start_all_reduce(x)
    threading.Timer(0.3, open_gate).start()
    dunlin.shutdown()
    say_value_or_closed(request)
    try:
        dunlin.all_reduce(x)
        say("no error")
    except dunlin.ClosedError:
        say("closed")


def left_behind():
    """The job ends, and a copy of a call in progress begins only then."""
    import gpu_arrays
    stream = gpu_arrays.Stream()
    x = ones(stream=stream)
    dunlin.all_reduce(x)
    open_gate = stream.gate()
    request = dunlin.start_all_reduce(x)  # noqa: F841 (it owns the copy)
    shut_down_in_progress()
    say(f"{gpu_arrays.counts()[5]} pinned")
    go_on(stream, open_gate)


def unpinnable():
    """One rank can't pin memory. All ranks make short calls on the GPU, so that no copy blocks."""
    import gpu_arrays
    x = ones()
    if dunlin.rank() == 1:
        gpu_arrays.CUDA.fake_cuda_fail(b"cuMemHostRegister")
    before = gpu_arrays.counts()[1]
    total = dunlin.all_reduce(x)
    say(f"{gpu_arrays.counts()[1] - before} copies of pageable memory")
    say(value(total))


def chaos():
    """A call of rank 1 to the driver fails. Every call ends, with the right result or with an error."""
    if dunlin.rank() != 1:
        del os.environ["FAKE_CUDA_FAIL"]  # the driver has not been loaded yet
    short, long = ones(40_000), ones(100_000)
    try:
        for x in (short, long) * 3:
            found = value(dunlin.all_reduce(x))
            if found != str(dunlin.size()):
                say(f"wrong: {found}")
    except (dunlin.Error, OSError):
        pass
    say("ended")
    os._exit(0)  # the other rank may not have got so far


def models_chaos():
    """The same for averages of models."""
    if dunlin.rank() != 1:
        del os.environ["FAKE_CUDA_FAIL"]
    everybody = range(dunlin.size())

    def rounds():
        x = ones(30_000)
        reduce = dunlin.StochasticReduce(30_000, "complete", gpu=0)
        groups = dunlin.GroupAverage(30_000, "static", group_size=2, gpu=0)
        for _ in range(3):
            yield reduce.average(x)
            yield groups.average(x)
            yield dunlin.partial_all_reduce(x, everybody, "avg", "gpu")

    try:
        for result in rounds():
            if value(result) != "1":
                say(f"wrong: {value(result)}")
    except (dunlin.Error, OSError):
        pass
    say("ended")
    os._exit(0)


def models_killed():
    """The stream of rank 0 stands still as rank 1 dies. Its memory is in use until the stream goes on."""
    import gpu_arrays
    stream = gpu_arrays.Stream()
    reduce = dunlin.StochasticReduce(5000, "complete", gpu=0)
    x = ones(stream=stream)
    reduce.average(x)
    dunlin.barrier()
    open_gate = stream.gate()
    request = reduce.start_average(x)
    dunlin.barrier()
    if dunlin.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        try:
            dunlin.barrier()
        except dunlin.PeerDeadError:
            break
    say_in_use(request, open_gate)


def models_not_copied():
    """The copy of a model fails at rank 0. No other rank gets an average with what was not copied."""
    import gpu_arrays
    stream = gpu_arrays.Stream()
    x = ones(stream=stream)
    groups = dunlin.GroupAverage(5000, "static", group_size=2, gpu=0)
    groups.average(x, iteration=1)
    open_gate = stream.gate()
    dunlin.barrier()
    if dunlin.rank() == 0:
        gpu_arrays.CUDA.fake_cuda_fail(b"cuEventQuery")
    request = None
    try:
        request = groups.start_average(x, iteration=3)
    except dunlin.Error as error:
        say(f"{type(error).__name__}: {error}")
    open_gate()
    try:
        if request is not None:
            request.wait()
            say("no error")
    except dunlin.Error as error:
        say(f"{type(error).__name__}: {error}")


def models_left_open():
    """The job ends while averages wait for a stream of the caller, which goes on meanwhile."""
    import threading

    import gpu_arrays
    stream = gpu_arrays.Stream()
    x, y, z = (ones(stream=stream) for _ in range(3))
    reduce = dunlin.StochasticReduce(5000, "complete", gpu=0)
    groups = dunlin.GroupAverage(5000, "static", group_size=2, gpu=0)
    open_gate = stream.gate()
    requests = [reduce.start_average(x), groups.start_average(y),
                dunlin.start_partial_all_reduce(z, range(dunlin.size()), out=z)]
    threading.Timer(0.3, open_gate).start()
    dunlin.shutdown()
    for request in requests:
        say_value_or_closed(request)


def models_left_behind():
    """The job ends, and copies of averages in progress begin only then."""
    import gpu_arrays
    stream = gpu_arrays.Stream()
    x = ones(stream=stream)
    reduce = dunlin.StochasticReduce(5000, "complete", gpu=0)
    open_gate = stream.gate()
    request = reduce.start_average(x)  # noqa: F841 (it owns the copy)
    shut_down_in_progress()
    go_on(stream, open_gate)


if __name__ == "__main__":
    if sys.argv[1] == "unreachable":  # ranks 0 and 1 are on one host, rank 2 is on another one
        os.environ["DUNLIN_HOST_ID"] = str(int(os.environ["DUNLIN_RANK"]) // 2)
    dunlin.init()
    globals()[sys.argv[1]]()
